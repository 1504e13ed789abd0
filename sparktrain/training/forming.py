"""How a member becomes one of its gang: it loads the backend, holds a port, learns where the others are, and joins."""

from collections.abc import Callable

from sparktrain.errors import FormError
from sparktrain.protocol.messages import Assignment
from sparktrain.spec.gang import Backend
from sparktrain.state.formation import ALONE, Formation
from sparktrain.training import backend
from sparktrain.training.port import HeldPort
from sparktrain.training.ring import LocalRing, Ring
from sparktrain.training.wire import AgentWire

RING_TIMEOUT_S = 30.0
"""How long the ring waits for a member whose process does not answer; a slow one answers."""


class Gang:
    """The gang of this process, and its ring."""

    def __init__(self, formation: Formation, join: Callable[[], Ring], release_port: Callable[[], None]) -> None:
        self.formation = formation
        self.release_port = release_port
        """Stop holding this member's port, for whoever binds it. Again: does nothing."""
        self._join = join
        self._ring: Ring | None = None

    @property
    def ring(self) -> Ring:
        """The ring. Connected at the first use, which all members must have in common. Raises FormError."""
        if self._ring is None:
            self._ring = self._join()
        return self._ring

    def leave(self) -> None:
        """Leave the ring, if there is one, as a member that has trained to its end."""
        if self._ring is not None:
            self._ring.close()


def alone() -> Gang:
    """The gang of an ordinary trial."""
    return Gang(ALONE, LocalRing, lambda: None)


def form(assignment: Assignment, wire: AgentWire) -> Gang:
    """Join the gang of `assignment`; waits for all its members.

    Horovod's ring is connected here, for its members find each other through the coordinator. That of TensorFlow is
    when it is first used, for a program may bring a strategy of its own, which must be the first to connect.
    Raises ImportError without the backend's framework, and FormError.
    """
    if assignment.size == 1:
        return alone()
    join = backend.load(assignment.backend)
    held = _hold(assignment.address)
    places = wire.reserve(held.number)
    if places is None:
        raise FormError("the agent is gone, and with it the way to the other members")
    formation = Formation(assignment.member.rank, places)
    joining = backend.Joining(formation, wire, held.release, RING_TIMEOUT_S)
    gang = Gang(formation, lambda: join(joining), held.release)
    if assignment.backend is Backend.HOROVOD:
        held.release()
        _ = gang.ring
    return gang


def _hold(address: str) -> HeldPort:
    try:
        return HeldPort(address)
    except OSError as error:
        raise FormError(f"no port of {address} can be bound: {error}; is it an address of this host?") from error
