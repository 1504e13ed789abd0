"""How a member becomes one of its gang: it loads the backend, holds a port, learns where the others are, and joins."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from sparktrain.clock import SystemClock
from sparktrain.config.gang_spec import Backend, Role
from sparktrain.config.uses import STRATEGY, names
from sparktrain.errors import FormError, RingError
from sparktrain.protocol.pipe_messages import Assignment
from sparktrain.state.topology import ALONE, Formation
from sparktrain.training import process_setup
from sparktrain.training.agent_pipe import AgentWire
from sparktrain.training.collectives import backend
from sparktrain.training.collectives.call_watch import Lookout
from sparktrain.training.collectives.held_port import HeldPort
from sparktrain.training.collectives.ring import LocalRing, Ring
from sparktrain.training.collectives.ring_errors import is_ring_error
from sparktrain.training.strategies.tf_cluster import has_ps, is_cluster_error, tf_config

if TYPE_CHECKING:
    from sparktrain.training.keras.missing_wrappers import Strays

RING_TIMEOUT_S = 30.0
"""How long the ring waits for a member whose process does not answer."""
SLOW_S = 3600.0
"""How long it waits for one that does answer, and only takes its time: whether that hangs is for `hang_timeout` to say,
and who is dead for the agents."""
ASK_S = 1.5
"""A member whose operation has failed waits so long for the others to say which ones they have called."""


class JoinedGang:
    """The gang of this process, and its ring."""

    def __init__(
        self,
        formation: Formation,
        join: Callable[[], Ring],
        release_port: Callable[[], None],
        exchange: backend.Exchange | None = None,
    ) -> None:
        self.formation = formation
        self.release_port = release_port
        """Stop holding this member's port, for whoever binds it. Again: does nothing."""
        self._join = join
        self._ring: Ring | None = None
        self._strays: Strays | None = None
        self._exchange = exchange
        self._lookout: Lookout | None = None
        self._found: Callable[[str], None] | None = None

    @property
    def ring(self) -> Ring:
        """The ring. Connected at the first use, which all members must have in common. Raises FormError."""
        if self._ring is None:
            self._ring = self._join()
            self._watch()
            self._look_out()
        return self._ring

    def on_mistake(self, found: Callable[[str], None]) -> None:
        """Have `found` called, in a thread, when members turn out to call different operations of the ring."""
        self._found = found
        self._look_out()

    def mistake(self) -> str | None:
        """What members do differently, where that is why an operation failed; waits a short time for what they say."""
        with suppress(OSError):
            return self._lookout.ask(ASK_S) if self._lookout is not None else None
        return None

    def broke(self, error: BaseException) -> bool:
        """Whether the training function raised `error` because a member is gone, or stuck."""
        return self.formation.size > 1 and (is_ring_error(error) or is_cluster_error(error))

    def leave(self) -> None:
        """Leave the ring, if there is one, as a member that has trained to its end."""
        if self._ring is None:
            return
        if self._strays is not None:
            with suppress(RingError):  # a member that is gone already takes nothing from what the others have done
                self._strays.compare(self._ring)
        self._ring.close()

    def _look_out(self) -> None:
        calls = None if self._ring is None else self._ring.calls
        if calls is None or self._exchange is None or self._found is None or self._lookout is not None:
            return
        self._lookout = Lookout(calls, self._exchange, self.formation.rank, SystemClock())
        self._lookout.start(self._found)

    def _watch(self) -> None:
        """Look out for optimizers that do not know the ring, unless the function does not use Keras."""
        if self.formation.size > 1 and "tensorflow" in sys.modules:  # the backend of a ring has imported it
            from sparktrain.training.keras.missing_wrappers import Strays

            self._strays = Strays()
            if "keras" in sys.modules:
                self._strays.watch()


def alone() -> JoinedGang:
    """The gang of an ordinary trial."""
    return JoinedGang(ALONE, LocalRing, lambda: None)


def form(assignment: Assignment, wire: AgentWire, function: Callable[..., object]) -> JoinedGang:
    """Join the gang of `assignment` that calls `function`; waits for all its members.

    The ring is connected here, for that is only possible before TensorFlow has run an operation; but a function that
    makes a strategy connects the members by that, and nothing else may have before.
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
    process_setup.connect(
        assignment, formation
    )  # before the ring, which initialises TensorFlow and with it the devices
    joining = backend.Joining(formation, wire, held.release, RING_TIMEOUT_S, SLOW_S)
    gang = JoinedGang(formation, lambda: join(joining), held.release, wire)
    if assignment.backend is Backend.TENSORFLOW:
        os.environ["TF_CONFIG"] = tf_config(formation)
        if has_ps(formation) or formation.role is Role.EVALUATOR or names(function, STRATEGY):
            return gang
    _ = gang.ring
    return gang


def _hold(address: str) -> HeldPort:
    try:
        return HeldPort(address)
    except OSError as error:
        raise FormError(f"no port of {address} can be bound: {error}; is it an address of this host?") from error
