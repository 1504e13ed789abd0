"""One change of the seats of a gang: why, for which member, and where its state comes from. Pure."""

from enum import Enum

from msgspec import Struct

from sparktrain.base.ids import CHIEF, Rank
from sparktrain.state.agents import AgentState


class ChangeReason(Enum):
    """Why the seats of a gang change."""

    LOST = "the process of a member is gone"
    DRAINED = "a member is on a drained agent"
    CROWDED = "a host has too many of the members"
    VACANT = "agents are there for more members"
    STANDBY = "a process that waits for a loss is lacking"
    PREEMPTED = "another run gets the agents"


class StateSource(Enum):
    """Where those that sit in the new seats get their state."""

    SURVIVORS = "from the members that train on, in the next ring"
    MEMORY = "from snapshots of all members, where the gang ends"
    STORE = "from the next checkpoint, where the gang ends"


class SeatChange(Struct, frozen=True, kw_only=True, gc=False):
    """What changes in a gang."""

    reason: ChangeReason
    source: StateSource = StateSource.SURVIVORS
    text: str
    """The reason, in one line, for users."""
    rank: Rank = CHIEF
    """The member that is lost, moves, comes back, or is first on a drained agent; the chief where it is none."""
    agent: AgentState | None = None
    """Where its next process starts; None where one that waits takes the place, or the seat is vacant from
    now on."""
