"""Which agent uses which GPU: two agents on one GPU would train at half the speed, or run out of its memory.

With `gpu_memory` they share a GPU, as long as the memory that each may use fits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sparktrain.base import formatting
from sparktrain.base.clock import Clock
from sparktrain.base.ids import AgentId
from sparktrain.config.gpu_slices import slice_text
from sparktrain.config.quantities import MIB
from sparktrain.protocol import messages as m
from sparktrain.protocol.checkup_report import SlotReport

DEAD_S = 15.0
"""An agent that sends nothing for so long does not block a new one: it is lost, and its loss not yet detected."""
_POLL_S = 0.05
GpuUser = m.Join | SlotReport
"""An agent, or a slot that the doctor examines."""


@dataclass
class _Holder:
    join: m.Join
    heard_at: float


class GpuClaims:
    """The GPUs of agents. All methods belong to the coordinator's event loop."""

    def __init__(self, clock: Clock, gpu_mib: int = 0) -> None:
        """Each agent may use `gpu_mib` MiB of its GPU; with 0 no two agents share one."""
        self._clock = clock
        self._gpu_mib = gpu_mib
        self._holders: dict[AgentId, _Holder] = {}
        self._on_machine: dict[tuple[str, str], dict[AgentId, _Holder]] = {}
        """The same by machine."""

    async def take(self, join: m.Join) -> str:
        """Note the GPUs of an agent that joins; returns why it may not have them, when live agents leave no room.

        Takes `DEAD_S` seconds at most: other agents may be dead, and must send a heartbeat first.
        """
        started = self._clock.now()
        while self._problem(join, None) and self._clock.now() - started < DEAD_S:
            if problem := self._problem(join, started):
                return problem
            await self._clock.sleep(_POLL_S)
        self.free(join.agent)  # of a life before, perhaps on another host
        self._holders[join.agent] = holder = _Holder(join, self._clock.now())
        self._on_machine.setdefault(_machine(join), {})[join.agent] = holder
        return ""

    def heard(self, agent: AgentId) -> None:
        """The agent is alive."""
        if agent in self._holders:
            self._holders[agent].heard_at = self._clock.now()

    def free(self, agent: AgentId) -> None:
        """The agent is gone."""
        holder = self._holders.pop(agent, None)
        if holder is None:
            return
        machine = _machine(holder.join)
        machine_holders = self._on_machine[machine]
        del machine_holders[agent]
        if not machine_holders:
            del self._on_machine[machine]

    def _problem(self, join: m.Join, heard_since: float | None) -> str:
        """Why the agent may not have its GPUs, by the agents that were heard since then, or all; empty when it may."""
        neighbors = self._on_machine.get(_machine(join), {}).values()
        other_joins = [holder.join for holder in neighbors if heard_since is None or holder.heard_at > heard_since]
        if self._gpu_mib:
            return shortage(join, other_joins, self._gpu_mib)
        return next(filter(None, (conflict(other_join, join) for other_join in other_joins)), "")


def _machine(user: GpuUser) -> tuple[str, str]:
    """Host and address: pods of one node have GPUs of their own, which may have equal names."""
    return user.host, user.address


def shortage(join: m.Join, others: Sequence[m.Join], gpu_mib: int) -> str:
    """Why an agent cannot use `gpu_mib` MiB of its GPUs beside `others` of its host; empty when it can."""
    subject = slice_text(gpu_mib)
    totals = dict(zip(join.devices, join.device_mib, strict=False))
    for name in join.devices:
        total = totals.get(name, 0)
        sharing = 1 + sum(name in other_join.devices for other_join in others if other_join.agent != join.agent)
        if not total and sharing > 1:
            return (
                f"{subject} needs to know the memory of the GPU that {sharing} agents share, {name} on {join.host}, "
                "and nvidia-smi does not report it there: install it, or give each agent a GPU of its own"
            )
        if total and sharing * gpu_mib > total:
            agents = formatting.count(sharing, "agent")
            capacity = formatting.size(total * MIB)
            gpu = f"{name} on {join.host} ({capacity})"
            return f"{subject} for each of {agents} is more than their GPU has, {gpu}: {_fewer(sharing)}"
    return ""


def _fewer(sharing: int) -> str:
    if sharing == 1:
        return "lower it"
    return "lower it, or have fewer tasks share a GPU, by a larger spark.task.resource.gpu.amount"


def conflict(one: GpuUser, other: GpuUser) -> str:
    """Why two agents of one host cannot both train, and what to do; empty when they can.

    Those of one executor can: within it, Spark may divide a GPU.
    """
    shared = sorted(set(one.devices) & set(other.devices))
    if _machine(one) != _machine(other) or one.executor == other.executor or not shared:
        return ""
    return (
        f"agents {one.slot} and {other.slot} have the same GPU, {shared[0]} on {other.host}: Spark's "
        "discovery script reports the same ones to all executors of a host; set "
        "spark.executor.resource.gpu.discoveryScript to conf/gpu-discovery.sh, which does not, or pass gpu_memory= to "
        "share GPUs"
    )
