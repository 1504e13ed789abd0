"""What the coordinator tells the machine. Each event carries its own time, in seconds of the coordinator's clock."""

from typing import Any

from msgspec import Struct

from sparktrain.ids import AgentId, Member, RunId
from sparktrain.state.outcome import Outcome, Report


class Event(Struct, frozen=True, tag=True):
    """Base of all events."""

    at: float


class AgentJoined(Event, frozen=True, tag=True):
    """A new agent has opened its stream."""

    agent: AgentId
    slot: int
    host: str


class AgentReady(Event, frozen=True, tag=True):
    """The agent has prepared `run` and can start a member of it; with no run, it has only started."""

    agent: AgentId
    run: RunId | None = None


class AgentBeat(Event, frozen=True, tag=True):
    """A sign of life."""

    agent: AgentId


class AgentGone(Event, frozen=True, tag=True):
    """The agent's stream has ended. Final for this agent id."""

    agent: AgentId
    reason: str


class RunLimits(Struct, frozen=True):
    """The part of a run's specification that decisions depend on."""

    size: int = 1
    """Members in the gang of each trial."""
    retries: int = 3
    """Times a trial runs again after a member was lost."""
    trial_timeout_s: float | None = None
    timeout_s: float | None = None
    start_timeout_s: float = 300.0
    """How long fewer agents than one gang needs may be there."""


class RunBegun(Event, frozen=True, tag=True):
    """A run begins; the machine has no other."""

    run: RunId
    limits: RunLimits


class Suggested(Event, frozen=True, tag=True):
    """Answer to the command `Suggest`: parameters of new trials, with their seeds."""

    run: RunId
    cases: tuple[dict[str, Any], ...]
    exhausted: bool
    """There will be no more."""


class MemberEntered(Event, frozen=True, tag=True):
    """A member has entered the training function."""

    agent: AgentId
    member: Member


class MemberReported(Event, frozen=True, tag=True):
    """A member reported metrics."""

    agent: AgentId
    member: Member
    reports: tuple[Report, ...]


class MemberEnded(Event, frozen=True, tag=True):
    """A member's process is gone."""

    agent: AgentId
    member: Member
    outcome: Outcome


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
