"""The contract of an engine, which starts the agents of a pool: a Spark session, or this machine."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparktrain.cluster.announced_losses import AnnouncedLosses
from sparktrain.cluster.driver_address import Address
from sparktrain.cluster.import_failures import Missing
from sparktrain.cluster.kubernetes_client import PodNodes
from sparktrain.cluster.task_failures import TaskFailures
from sparktrain.cluster.token_renewer import TokenKeeper
from sparktrain.config.connect_server import ConnectServer
from sparktrain.config.store_address import StoreAddress
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.driver.data.data_plan import DataPlan
from sparktrain.errors import SessionError
from sparktrain.protocol.certificates import CertificateKeeper
from sparktrain.protocol.scouting import ScoutReport, ScoutTicket
from sparktrain.protocol.ticket import AgentTicket


@dataclass(frozen=True)
class JobEnd:
    """How a batch of agents ended: the exits of its agents, or why the engine gave the batch up."""

    exits: tuple[tuple[int, str, bool], ...] = ()
    """One entry for each agent that left: slot, reason, and whether it had reached the coordinator."""
    error: str | None = None
    missing: Missing | None = None
    """The module that agents lacked, where the engine's error names one."""

    @property
    def problem(self) -> str:
        """The error, or why each agent left."""
        return self.error or "; ".join(reason for _, reason, _ in self.exits)


class AgentBatch(ABC):
    """Agents of one pool that an engine starts together, one for each slot. Any thread may call its methods.

    The engine restarts an agent when its process is lost, and calls `on_end` once, in a thread of its own, when every
    agent has left or the engine gives the batch up.
    """

    @abstractmethod
    def start(self) -> None:
        """Start the agents; returns at once."""

    @abstractmethod
    def lacking(self) -> Missing | None:
        """The module that keeps agents from starting while the engine still tries; None when none is known.

        Blocks for a moment; raises nothing.
        """

    @abstractmethod
    def vacant(self) -> set[int]:
        """Slots that an agent has left. Blocks for a moment; raises nothing."""

    @abstractmethod
    def cancel(self) -> None:
        """End the agents that have not left; waits some seconds for their end."""

    @abstractmethod
    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the batch; True when it has ended."""


OnBatchEnd = Callable[[JobEnd], None]


class Engine(ABC):
    """Slots for agents, as one call or one pool uses them."""

    batch_name: str
    """What runs a batch of agents, such as a Spark job, for messages."""
    runs_jobs: bool
    """Whether Spark jobs, such as those that write data, need the slots of the agents."""
    gpu_mib: int
    """MiB of one GPU that each agent's member may use, so that agents share GPUs; 0: none shares one."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Spark's master, or this machine, for messages."""

    @property
    @abstractmethod
    def holder(self) -> object:
        """The object that has the slots: engines with the same holder share them."""

    @property
    @abstractmethod
    def slots(self) -> int | None:
        """How many agents can run at a time; None when that is unknown."""

    @property
    @abstractmethod
    def inherits(self) -> bool:
        """Whether members have the environment of this process, and the home of its user."""

    @property
    @abstractmethod
    def notice(self) -> str | None:
        """The default of `notice`. Raises SpecError where it is no file or URL."""

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """Lines that a run shows when it starts."""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether the engine has stopped, so that no agent can start. Blocks for a moment."""

    @abstractmethod
    def sharing(self, gpu_mib: int) -> "Engine":
        """This engine with agents that share GPUs, and use so many MiB each; itself for 0.

        Raises ResourceError where they do not fit, as far as this process can know. May block on `nvidia-smi`.
        """

    @abstractmethod
    def check_data(self, plan: DataPlan) -> None:
        """Check that what writes the datasets of a call goes with this engine. Raises SessionError."""

    @abstractmethod
    def check_run(self, spec: SweepSpec) -> None:
        """Check that agents of this engine fit the members of a run. Raises ResourceError."""

    @abstractmethod
    def check_cluster(self) -> None:
        """Check that agents can start at all. Raises ResourceError. Blocks for some seconds at most."""

    @abstractmethod
    def agents_for(
        self, spec: SweepSpec | None, agents: int | None, trials: int | None, concurrent: int | None = None
    ) -> tuple[int, int]:
        """How many agents to start, and how many of them without GPUs; `spec` is None for a pool.

        Raises SpecError when `agents` is no number of agents, ResourceError when there are too few slots.
        """

    @abstractmethod
    def tokens(self, store: StoreAddress) -> TokenKeeper | None:
        """The delegation tokens by which agents use the store; None when they need none, or there are none. Blocks."""

    def certificates(self, pool: str) -> CertificateKeeper:
        """The certificates of a pool of agents."""
        return CertificateKeeper(pool)

    @abstractmethod
    def address(self) -> Address:
        """The address on which the coordinator listens. Raises SessionError when there is none."""

    @abstractmethod
    def loss_reasons(self) -> TaskFailures | None:
        """A function that explains lost agents; None where the engine has none."""

    @abstractmethod
    def announcements(self) -> AnnouncedLosses | None:
        """What reports which agents will be lost, as their cluster announces it; None where it does not."""

    @abstractmethod
    def outlook(self, agents: int) -> Callable[[], str]:
        """A function that explains why `agents` agents do not join; it blocks, and may return an empty text.

        It raises ResourceError where none will: the cluster refuses what they need, until a person changes something.
        """

    @abstractmethod
    def batch(
        self, ticket: AgentTicket, slots: range, held: Sequence[int], on_end: OnBatchEnd, *, without_gpus: bool
    ) -> AgentBatch:
        """A batch of agents for `slots` of a pool, not yet started.

        `held`: which of the engine's slots the pool has, by its own numbers; no other pool of this process has them.
        """

    @property
    def is_remote(self) -> bool:
        """Whether executors may be unable to reach this process, as with Spark Connect."""
        return False

    @property
    def on_one_machine(self) -> bool:
        """Whether all agents are on the machine of this process, so that they see its files."""
        return False

    def pod_nodes(self) -> PodNodes | None:
        """The nodes of agents' pods; None where agents are in no pods, or where this process cannot ask."""
        return None

    def application_settings(self) -> dict[str, str] | None:
        """Spark's whole configuration, perhaps with secrets, where YARN can run another application as this one.

        None elsewhere. Blocks on the session. Raises SpecError where a run that should outlive this process cannot, and
        another way is there.
        """
        return None

    def connect_server(self) -> ConnectServer | None:
        """The Spark Connect server that runs the agents; None where another engine does. Blocks on the session."""
        return None

    def scout(self, ticket: ScoutTicket, timeout_s: float) -> ScoutReport:
        """What one executor sees of a run directory, and of this process. Blocks for `timeout_s` at most.

        Raises SessionError, also for an engine without executors; JoinTimeoutError where none had a free slot.
        """
        raise SessionError(f"{self.name} has no executors that could be asked")

    @abstractmethod
    def refused_s(self) -> float | None:
        """The value of `AgentTicket.refused_s` for this engine."""
