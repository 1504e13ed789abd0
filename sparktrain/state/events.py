"""What the coordinator tells the machine. Each event carries its own time, in seconds of the coordinator's clock."""

from typing import Any

from msgspec import Struct

from sparktrain.config.gang_spec import Role
from sparktrain.ids import AgentId, RunId
from sparktrain.state.agent_messages import StateInput
from sparktrain.state.outcome import Loss
from sparktrain.state.records import AnyRecord, DriverStarted


class Event(Struct, frozen=True, tag=True):
    """Base of all events."""

    at: float


class AgentJoined(Event, frozen=True, tag=True):
    """A new agent has opened its stream."""

    agent: AgentId
    slot: int
    host: str
    address: str = "127.0.0.1"
    """IP address of its host, that other agents reach."""
    gpus: int = 0
    """That Spark gives its members."""


class AgentSent(Event, frozen=True, tag=True):
    """An agent has sent a message."""

    agent: AgentId
    message: StateInput


class AgentGone(Event, frozen=True, tag=True):
    """The agent's stream has ended. Final for this agent id."""

    agent: AgentId
    reason: str


class LossExplained(Event, frozen=True, tag=True):
    """The cluster has said why an agent was lost: seconds after its stream has ended, or minutes."""

    agent: AgentId
    loss: Loss
    told: str
    """What happened, and what to do, in one line."""


class RunLimits(Struct, frozen=True):
    """The part of a run's specification that decisions depend on."""

    roles: tuple[Role, ...] = (Role.CHIEF,)
    """Of the members of each trial's gang, by rank."""
    min_size: int | None = None
    """Once agents are lost for good, a gang goes on with so many members; None: it waits for all."""
    lookahead: int = 0
    """Trials that the sampler is asked for ahead of need; for one that does not learn from results."""
    restarts: int = 3
    """Times a trial's gang is formed again without a newer checkpoint."""
    recovers: bool = False
    """A crash is restarted too, and an exception after progress; else they are the trial's result."""
    join_timeout_s: float = 300.0
    """From the start of a gang's first process until its last member is in the training function."""
    hang_timeout_s: float = 120.0
    """A member that has begun to tell its steps, and tells none for so long, hangs."""
    report_timeout_s: float | None = None
    """The same of a member that tells no steps, and has begun to report metrics; None: it may be silent for ever."""
    trial_timeout_s: float | None = None
    timeout_s: float | None = None
    max_failures: int | None = None
    """So many trials that fail end the run."""
    alike_failures: int | None = None
    """So many end it when they are the first ones, and fail in the same way."""
    total: int | None = None
    """Trials that there will be, where that is known."""
    agents: int = 0
    """That were asked for."""
    start_timeout_s: float = 300.0
    """How long fewer agents than one gang needs may be there."""

    @property
    def size(self) -> int:
        """Members in the gang of each trial."""
        return len(self.roles)

    @property
    def least(self) -> int:
        """Agents without which nothing can go on."""
        return self.size if self.min_size is None else self.min_size


class RunStarted(Event, frozen=True, tag=True):
    """A run begins; the machine has no other."""

    run: RunId
    limits: RunLimits
    records: tuple[AnyRecord, ...] = ()
    """What the journal holds of the drivers before."""
    driver_started: DriverStarted = DriverStarted(plan="", at=0.0)
    """What it gets of this one."""


class Suggested(Event, frozen=True, tag=True):
    """Answer to the command `Suggest`: parameters of new trials, with their seeds."""

    run: RunId
    cases: tuple[dict[str, Any], ...]
    exhausted: bool
    """There will be no more."""


class StopAsked(Event, frozen=True, tag=True):
    """The run shall stop: nothing new starts, what runs is advised to stop and is ended `grace_s` later."""

    run: RunId
    reason: str
    grace_s: float


class AgentsUnavailable(Event, frozen=True, tag=True):
    """The Spark job of the agents is over and will not be started again."""

    reason: str


class Ticked(Event, frozen=True, tag=True):
    """Time has passed: deadlines are checked."""
