"""What rings with other members share, whatever makes their collectives."""

from abc import abstractmethod

from sparktrain.errors import RingError
from sparktrain.state.topology import Formation
from sparktrain.training.collectives import barrier
from sparktrain.training.collectives.continuity import Continuity
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.collectives.step_notes import StepNotes


class GangRing(Ring):
    """The base of rings with other members."""

    notes: StepNotes

    def __init__(self, formation: Formation) -> None:
        self.notes = StepNotes()
        self.continuity = Continuity()
        self.traced_names: set[str] = set()
        """The names of collectives in functions; none where every collective is eager."""
        self._closed = False
        self.take_place(formation)

    def take_place(self, formation: Formation) -> None:
        """This member has joined the ring of `formation`, perhaps one of another size."""
        self.formation = formation
        self.rank = formation.rank
        self.size = formation.size

    def close(self) -> None:
        """Leave once, by `_end`."""
        if not self._closed:
            self._closed = True
            self._end()

    @abstractmethod
    def _end(self) -> None:
        """Leave together with all other members; one that is gone does not undo the work of the others."""

    def _failed(self, name: str, reason: str, waited: str = "") -> RingError:
        """The error of an operation, with the framework's `reason`, and how long it has waited where it had a limit."""
        member = barrier.this_member(self.formation)
        return RingError(
            f"{member}: operation {name!r} of the ring failed: a member is gone{waited}, or passed another shape "
            f"({reason})"
        )
