"""What has happened, for the state machine. Each event carries its own time, in seconds of the coordinator's clock."""

from typing import Any

from msgspec import Struct

from sparktrain.base.ids import AgentId, Member, RunId, TrialId
from sparktrain.config.distribution import Distribution
from sparktrain.config.gang_spec import Role
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.state.agent_messages import HeldMember, StateInput
from sparktrain.state.ending import Ending
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
    """See `AgentState`."""
    address: str = "127.0.0.1"
    gpus: int = 0
    """GPUs that Spark gives its members."""
    held: HeldMember | None = None
    """The member that it has held since its coordinator was lost."""


class AgentSent(Event, frozen=True, tag=True):
    """An agent has sent a message."""

    agent: AgentId
    message: StateInput


class AgentGone(Event, frozen=True, tag=True):
    """The agent's stream has ended. Final for this agent id."""

    agent: AgentId
    reason: str


class LossAnnounced(Event, frozen=True, tag=True):
    """The cluster has announced that the agent will be lost."""

    agent: AgentId
    notice: str
    """What announced it, in a few words."""


class LossExplained(Event, frozen=True, tag=True):
    """The cluster has reported why an agent was lost: seconds or minutes after its stream ended."""

    agent: AgentId
    loss: Loss
    reason: str
    """What happened, and what to do, in one line."""


class Allotment(Struct, frozen=True, kw_only=True):
    """How many agents a run gets of its pool, which other runs may use too."""

    agents: int = 0
    """Agents that the run asked for."""
    most: int | None = None
    """Agents that it may have at most, on a pool that has more; None: all of them."""
    weight: float = 1.0
    """Its share, measured against the weights of other runs."""
    priority: int = 0
    """Runs of a higher one get agents first, also those of trials of lower ones."""


class RunLimits(Struct, frozen=True, kw_only=True):
    """What decisions about a run depend on: its specification, and what the call adds to it."""

    spec: SweepSpec
    roles: tuple[Role, ...] = (Role.CHIEF,)
    """Roles of the members of each trial's gang, by rank."""
    lookahead: int = 0
    """Cases to request ahead of need, so that a free slot need not wait for the sampler."""
    recovers: bool = False
    """A gang restarts after a crash too, and after an exception with progress; else they are the trial's result."""
    join_timeout_s: float = 300.0
    """From the start of a gang's first process until its last member is in the training function."""
    restarts_members: bool = False
    """A worker or an evaluator of a gang with parameter servers restarts alone, where it can. Not in a run with data
    or streams: these continue from a checkpoint, for all members."""
    restarts_servers: bool = False
    """A parameter server restarts alone too: the chief gives it its variables again. Members that restart alone may
    move to another host: they meet at these servers alone, and learn where they are."""
    heals: bool = False
    """A ring keeps the processes of the others when it loses a member, where they can do that. Not with `healing` off,
    and not in a run with streams: these continue from a checkpoint, for all members."""
    alike_failures: int | None = None
    """The number of failed trials that ends the run when the first ones all fail in the same way."""
    total: int | None = None
    """Number of trials, where that is known."""
    allotment: Allotment = Allotment()
    """How many agents the run gets."""
    leaves: tuple[tuple[str, Distribution | tuple[Any, ...]], ...] = ()
    """The distributions and lists of the space, by their paths, for rules that change parameters."""

    @property
    def agents(self) -> int:
        """Agents that the run asked for."""
        return self.allotment.agents

    @property
    def size(self) -> int:
        """Members in the gang of each trial."""
        return len(self.roles)

    @property
    def moves_lost_members(self) -> bool:
        """Lost members may restart at other places: they meet at the gang's own parameter servers, or in a new ring."""
        return self.restarts_servers or Role.PS not in self.roles

    @property
    def least(self) -> int:
        """Agents that the run needs to make progress."""
        smallest = self.spec.gang.min_workers
        return self.size if smallest is None else smallest


class RunStarted(Event, frozen=True, tag=True):
    """A run starts, also while others are on; none of these has its name."""

    run: RunId
    limits: RunLimits
    records: tuple[AnyRecord, ...] = ()
    """What the journal holds of earlier drivers."""
    driver_started: DriverStarted = DriverStarted(plan="", at=0.0)
    """The record of this driver."""


class Suggested(Event, frozen=True, tag=True):
    """Answer to the command `Suggest`: parameters of new trials, with their seeds."""

    run: RunId
    cases: tuple[dict[str, Any], ...]
    exhausted: bool
    """No more will follow."""
    memo: dict[str, Any] = {}
    """What the sampler needs beside the cases to continue under another driver."""


class QuestionAnswered(Event, frozen=True, tag=True):
    """Answer to the command `AskSampler`."""

    agent: AgentId
    member: Member
    number: int
    answer: bytes
    problem: str = ""
    """Why the sampler has no answer."""
    params: dict[str, Any] = {}
    """Parameters that the trial has by this answer, beside earlier ones."""
    memo: dict[str, Any] = {}
    """What the sampler needs beside them to continue under another driver."""


class StopAsked(Event, frozen=True, tag=True):
    """The run must stop: nothing new starts, members are advised to stop, and are ended `grace_s` later."""

    run: RunId
    reason: str
    grace_s: float
    ending: Ending = Ending.STOPPED


class TrialStopAsked(Event, frozen=True, tag=True):
    """The user stops one trial of a sweep: it ends as one that a rule stops, and is never retried."""

    run: RunId
    trial: TrialId
    reason: str


class DrainAsked(Event, frozen=True, tag=True):
    """The user drains a host or an agent: it gets no new member, and the members that it has move elsewhere."""

    run: RunId
    request: str
    """Id of the request: each one counts once."""
    host: str = ""
    agent: int | None = None
    """Number of the agent's slot; None where the request names a host."""
    problem: str = ""
    """Why the request cannot be accepted, where the driver knows that."""
    cancels: bool = False
    """The user drains the host or the agent no longer."""


class AgentsUnavailable(Event, frozen=True, tag=True):
    """The Spark job of the agents is over and will not be resubmitted."""

    reason: str


class Ticked(Event, frozen=True, tag=True):
    """Time has passed; the machine checks its deadlines."""
