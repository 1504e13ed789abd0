"""A member of a running gang that restarts alone, from its loss until it trains again."""

from dataclasses import dataclass
from enum import Enum

from msgspec.structs import replace

from sparktrain.state.outcome import Failure


class AbsenceStage(Enum):
    """How far the restart of one member is."""

    ENDING = "its process hangs, and is being ended"
    WAITING = "its process is gone; no agent has its next one"
    STARTING = "an agent starts its next process"


@dataclass(slots=True)
class Absence:
    """Why one member is away, and until when the others train without it."""

    failure: Failure
    since: float
    stage: AbsenceStage
    by: float
    """When its process must have ended, an agent must have the next one, or that must train."""
    reserved: bool = False
    """Its next process holds the port, and has the addresses of the others."""

    def failed(self, why: str) -> Failure:
        """The cause of the gang's restart when the member does not return."""
        return replace(self.failure, summary=f"{self.failure.summary}; it could not restart alone: {why}")
