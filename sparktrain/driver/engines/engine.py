"""What carries the agents of a pool: a Spark session, or processes of this machine. The contract of both."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sparktrain.cluster.driver_address import Address
from sparktrain.cluster.import_failures import Missing
from sparktrain.cluster.task_failures import TaskFailures
from sparktrain.cluster.token_renewer import TokenKeeper
from sparktrain.config.store_address import StoreAddress
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.protocol.ticket import AgentTicket


@dataclass(frozen=True)
class JobEnd:
    """How a batch of agents ended: what each agent said, or why the engine gave the batch up."""

    exits: tuple[tuple[int, str, bool], ...] = ()
    """Slot, reason, and whether it had reached the coordinator, of each agent."""
    error: str | None = None
    missing: Missing | None = None
    """What kept agents from starting, where the engine's error names it."""


class AgentBatch(Protocol):
    """Agents of one pool that an engine starts together, one for each slot. Any thread may call its methods.

    The engine restarts an agent whose process is lost, and calls `on_end` once, in a thread of its own, when every
    agent has ended by itself or the engine gives the batch up.
    """

    def start(self) -> None:
        """Start the agents; returns at once."""
        ...

    def lacking(self) -> Missing | None:
        """What keeps agents from starting, while the engine still tries; None when nothing is known to be missing.

        Blocks for a moment; raises nothing.
        """
        ...

    def vacant(self) -> set[int]:
        """Slots whose agents have ended by themselves. Blocks for a moment; raises nothing."""
        ...

    def cancel(self) -> None:
        """End the agents that did not end by themselves; waits some seconds for that."""
        ...

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the batch; whether it has ended."""
        ...


OnBatchEnd = Callable[[AgentBatch, JobEnd], None]


class Engine(Protocol):
    """Slots for agents, as one call or one pool uses them."""

    @property
    def name(self) -> str:
        """For messages: Spark's master, or this machine."""
        ...

    @property
    def batch_name(self) -> str:
        """What carries a batch of agents, for messages."""
        ...

    @property
    def holder(self) -> object:
        """Who has the slots: engines with the same holder share them."""
        ...

    @property
    def slots(self) -> int | None:
        """How many agents can run at a time; None when nobody knows."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a run shows in its first lines."""
        ...

    @property
    def ended(self) -> bool:
        """Whether it can start no agent any more. Blocks for a moment."""
        ...

    def check_run(self, spec: SweepSpec) -> None:
        """Raises ResourceError when no agent of this engine fits the members of a run."""
        ...

    def check_cluster(self) -> None:
        """Raises ResourceError when no agent will ever start. Blocks for some seconds at most."""
        ...

    def agents_for(
        self, spec: SweepSpec | None, wanted: int | None, trials: int | None, concurrent: int | None = None
    ) -> tuple[int, int]:
        """How many agents to start, and how many of them in places without GPUs; `spec` None for a pool.

        Raises SpecError when `wanted` is no number of agents, ResourceError when there are too few slots.
        """
        ...

    def tokens(self, store: StoreAddress) -> TokenKeeper | None:
        """What agents prove themselves by to the store; None when they need nothing or nothing is there. Blocks."""
        ...

    def address(self) -> Address:
        """Raises SessionError when the coordinator can listen nowhere."""
        ...

    def loss_reasons(self) -> TaskFailures | None:
        """Explains lost agents; None where nobody can."""
        ...

    def outlook(self, agents: int) -> Callable[[], str]:
        """Says why so many agents do not come; what it returns may be empty, and blocks."""
        ...

    def batch(self, ticket: AgentTicket, slots: range, on_end: OnBatchEnd, *, without_gpus: bool) -> AgentBatch:
        """Agents for `slots`, not yet started."""
        ...

    def refused_s(self) -> float | None:
        """As `AgentTicket.refused_s`."""
        ...
