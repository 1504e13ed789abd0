"""Agents as processes of this machine: no Spark, no Java."""

import socket
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from itertools import count, pairwise

from sparktrain.base import formatting
from sparktrain.base.control_groups import available_cores
from sparktrain.base.ids import SparkTask
from sparktrain.cluster import preflight
from sparktrain.cluster.driver_address import Address
from sparktrain.cluster.task_failures import TaskFailures
from sparktrain.cluster.token_renewer import TokenKeeper, has_ticket, wants_tokens
from sparktrain.config.gpu_slices import gpu_of_each_slot
from sparktrain.config.quantities import count as integer
from sparktrain.config.store_address import StoreAddress
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.driver.data.data_plan import DataPlan
from sparktrain.driver.engines.engine import Engine, OnBatchEnd
from sparktrain.driver.engines.local_batch import AgentPlace, LocalBatch
from sparktrain.driver.engines.nursery_process import NurseryProcess
from sparktrain.errors import ResourceError, SessionError
from sparktrain.executor.devices import devices
from sparktrain.protocol.ticket import AgentTicket
from sparktrain.store.hadoop.token_file import has_token_file
from sparktrain.training.own_devices import gpus_here

LOOPBACK = "127.0.0.1"
"""The address of the coordinator of a local run: no other machine can connect to it."""


class LocalMachine:
    """This machine in place of a Spark session; `sparktrain.local` makes it.

    Calls and pools that get the same object share its slots.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots

    def __repr__(self) -> str:
        return f"sparktrain.local(slots={self.slots})"


def local(slots: int = 2) -> LocalMachine:
    """Train in processes of this machine, without Spark and Java: pass it as `spark=`.

    Everything else is as on a cluster: a fresh process for each trial, gangs, the journal, retries after a loss,
    resuming. A run that started here can resume on a cluster, and the other way round. Does not block, and starts
    nothing.

    Args:
        slots: how many members train at a time, each in a process of its own. TensorFlow gets an equal share of the
            cores in each. More slots than cores are allowed, and the first lines of a run point it out. The GPUs of
            this machine (those in `CUDA_VISIBLE_DEVICES`, else those that `nvidia-smi` lists) are divided among the
            slots: no GPU is in two of them, unless the call or the pool has `gpu_memory`.

    Returns:
        The machine, to pass as `spark=`.

    Raises:
        SpecError: `slots` is not a number of at least 1.
    """
    return LocalMachine(integer(slots, "slots", least=1))


class LocalEngine(Engine):
    """The slots of this machine."""

    batch_name = "the agents of this machine"
    runs_jobs = False

    def __init__(
        self,
        machine: LocalMachine,
        cores: int | None = None,
        gpus: tuple[str, ...] | None = None,
        nursery: NurseryProcess | None = None,
    ) -> None:
        """`cores` and `gpus` are by default those that this machine has.

        `nursery` was started early, while the driver still imports, and is for the first batch.
        """
        self._machine = machine
        self._cores = available_cores() if cores is None else cores
        self._given_gpus = gpus
        self._gpu_of_slot: tuple[str, ...] = ()
        """Of agents that share GPUs: one for each slot."""
        self._totals: dict[str, int] = {}
        """MiB of the GPUs that agents share."""
        self.gpu_mib = 0
        self._tasks = count()
        self._warm = nursery
        self._losses: dict[int, str] = {}
        """Why agents were lost, by the numbers of their tasks."""

    @property
    def name(self) -> str:
        """See base class."""
        return f"this machine ({formatting.count(self.slots, 'slot')})"

    @property
    def holder(self) -> object:
        """See base class."""
        return self._machine

    @property
    def slots(self) -> int:
        """See base class."""
        return self._machine.slots

    @property
    def notes(self) -> tuple[str, ...]:
        """See base class."""
        on = f"{formatting.count(self.slots, 'slot')} on this machine ({socket.gethostname()})"
        cores = formatting.count(self._cores, "core")
        if self.slots > self._cores:
            return (f"{on}, which has {cores}: trials slow each other down; --slots {self._cores} avoids that",)
        return (f"{on}, which has {cores}",)

    @property
    def ended(self) -> bool:
        """See base class."""
        return False

    @cached_property
    def _gpus(self) -> tuple[tuple[str, ...], ...]:
        """The GPUs of each slot."""
        if self._gpu_of_slot:
            return tuple((gpu,) for gpu in self._gpu_of_slot)
        return share_out(self._machine_gpus, self.slots)

    @cached_property
    def _machine_gpus(self) -> tuple[str, ...]:
        """The GPUs of this machine."""
        return gpus_here() if self._given_gpus is None else self._given_gpus

    @property
    def inherits(self) -> bool:
        """See base class."""
        return True

    @property
    def notice(self) -> None:
        """None: there is no session with a default."""

    def sharing(self, gpu_mib: int) -> "LocalEngine":
        """See base class."""
        if not gpu_mib:
            return self
        # One nursery serves one batch: the copy takes it over, so that no two engines close it.
        warm = self._warm
        self._warm = None
        engine = LocalEngine(self._machine, self._cores, self._machine_gpus, warm)
        engine._totals = memory_of(self._machine_gpus)
        engine._gpu_of_slot = gpu_of_each_slot(engine._totals, self.slots, gpu_mib)
        engine.gpu_mib = gpu_mib
        return engine

    def check_data(self, plan: DataPlan) -> None:
        """Nothing to check: DataFrames have a session of their own, which holds no slots of this machine."""

    def check_run(self, spec: SweepSpec) -> None:
        """See base class."""
        if spec.gpus <= min(map(len, self._gpus)):
            return
        total = sum(map(len, self._gpus))
        if spec.gpus > total:
            raise ResourceError(
                f"gpus ({spec.gpus}) exceeds the {formatting.count(total, 'GPU')} of this machine: lower it, or use a "
                "cluster that has them"
            )
        raise ResourceError(
            f"gpus ({spec.gpus}) is more than each of {self.slots} slots can have of the "
            f"{formatting.count(total, 'GPU')} of this machine: lower it, or use "
            f"local(slots={total // spec.gpus}) (--slots {total // spec.gpus})"
        )

    def check_cluster(self) -> None:
        """Nothing to check: this machine runs."""

    def agents_for(
        self, spec: SweepSpec | None, agents: int | None, trials: int | None, concurrent: int | None = None
    ) -> tuple[int, int]:
        """See base class."""
        preflight.check_agents(agents)
        size = spec.gang.size if spec is not None else 1
        slots = self.slots
        if spec is not None:
            size += spec.gang.standby
            preflight.check_standby(slots, agents, spec.gang, "local()", f"use local(slots={size}) (--slots {size})")
        if slots < size:
            raise ResourceError(
                f"the gang has {size} members and local() has {formatting.count(slots, 'slot')}: a gang starts only "
                f"when it has all of them; use local(slots={size}) (--slots {size}), or lower the number of workers"
            )
        if agents is None:
            limits = [limit for limit in (slots // size, trials, concurrent) if limit is not None]
            return size * min(limits), 0
        if agents > slots:
            raise ResourceError(
                f"agents ({agents}) exceeds the {formatting.count(slots, 'slot')} of local(): lower it, or use "
                f"local(slots={agents}) (--slots {agents})"
            )
        if agents < size:
            raise preflight.too_few_agents(agents, size)
        return agents, 0

    def tokens(self, store: StoreAddress) -> TokenKeeper | None:
        """None: agents use the Kerberos ticket or the token file of the user of this process.

        Raises SessionError where the store requires Kerberos and this process has neither.
        """
        if wants_tokens(store) and not has_token_file() and not has_ticket():
            raise SessionError(
                f"{store.url} wants Kerberos, and this process has no ticket: run kinit; only a Spark session can "
                "fetch delegation tokens, so a local run uses the ticket itself"
            )
        return None

    def address(self) -> Address:
        """See base class."""
        return Address(LOOPBACK, (LOOPBACK,), 0)

    def loss_reasons(self) -> TaskFailures:
        """See base class."""
        return self._lost

    def announcements(self) -> None:
        """None: nothing but signals announces that this machine takes an agent away."""

    def outlook(self, agents: int) -> Callable[[], str]:
        """See base class."""
        return lambda: next(reversed(self._losses.values()), "")

    def batch(
        self, ticket: AgentTicket, slots: range, held: Sequence[int], on_end: OnBatchEnd, *, without_gpus: bool
    ) -> LocalBatch:
        """See base class."""
        shared = any(self._gpus)
        cpus = max(1, self._cores // self.slots)
        places = {
            slot: self._place(cpus, self._gpus[held[slot]]) if shared else AgentPlace(cpus, None) for slot in slots
        }
        warm = self._warm
        self._warm = None
        return LocalBatch(ticket, places, on_end, self._losses, self._tasks, nursery=warm)

    def _place(self, cpus: int, gpus: tuple[str, ...]) -> AgentPlace:
        return AgentPlace(cpus, gpus, tuple(self._totals.get(gpu, 0) for gpu in gpus))

    def refused_s(self) -> None:
        """None: agents end with this process."""

    def _lost(self, tasks: Collection[SparkTask]) -> dict[int, str]:
        return dict(self._losses)


def memory_of(gpus: tuple[str, ...]) -> dict[str, int]:
    """MiB of the memory of each of these GPUs; 0 where `nvidia-smi` does not report it, for which it blocks."""
    return {gpu: device.mib for gpu, device in zip(gpus, devices(gpus), strict=True)}


def share_out(gpus: tuple[str, ...], slots: int) -> tuple[tuple[str, ...], ...]:
    """The GPUs of each slot: equal numbers, and one more for the first slots where they do not divide evenly."""
    share, remainder = divmod(len(gpus), slots)
    starts = [slot * share + min(slot, remainder) for slot in range(slots + 1)]
    return tuple(gpus[start:end] for start, end in pairwise(starts))
