"""How a member becomes one of its gang: it loads the backend, holds a port, learns where the others are, and joins."""

import inspect
import os
from collections.abc import Callable
from types import CodeType

from sparktrain.errors import FormError
from sparktrain.protocol.pipe_messages import Assignment
from sparktrain.spec.gang import Backend, Role
from sparktrain.state.formation import ALONE, Formation
from sparktrain.training import backend
from sparktrain.training.cluster import has_ps, is_cluster_error, tf_config
from sparktrain.training.port import HeldPort
from sparktrain.training.ring import LocalRing, Ring
from sparktrain.training.ring_errors import is_ring_error
from sparktrain.training.wire import AgentWire

STRATEGY = "strategy"
"""What a training function calls on its context to make a strategy of TensorFlow's."""
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

    def broke(self, error: BaseException) -> bool:
        """Whether the training function raised `error` because a member is gone, or stuck."""
        return self.formation.size > 1 and (is_ring_error(error) or is_cluster_error(error))

    def leave(self) -> None:
        """Leave the ring, if there is one, as a member that has trained to its end."""
        if self._ring is not None:
            self._ring.close()


def alone() -> Gang:
    """The gang of an ordinary trial."""
    return Gang(ALONE, LocalRing, lambda: None)


def form(assignment: Assignment, wire: AgentWire, function: Callable[..., object]) -> Gang:
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
    joining = backend.Joining(formation, wire, held.release, RING_TIMEOUT_S)
    gang = Gang(formation, lambda: join(joining), held.release)
    if assignment.backend is Backend.TENSORFLOW:
        os.environ["TF_CONFIG"] = tf_config(formation)
        if has_ps(formation) or formation.role is Role.EVALUATOR or names(function, STRATEGY):
            return gang
    _ = gang.ring
    return gang


def names(function: object, name: str) -> bool:
    """Whether `function` has `name` in its code, or in that of the functions of its module that it refers to."""
    seen: set[int] = set()
    waiting: list[object] = [function]
    while waiting:
        found = inspect.unwrap(waiting.pop())  # type: ignore[arg-type]
        code = getattr(found, "__code__", found)
        if not isinstance(code, CodeType) or id(code) in seen:
            continue
        seen.add(id(code))
        if name in code.co_names:
            return True
        known = getattr(found, "__globals__", {})
        waiting += [const for const in code.co_consts if isinstance(const, CodeType)]
        waiting += [known[each] for each in code.co_names if inspect.isfunction(known.get(each))]
    return False


def _hold(address: str) -> HeldPort:
    try:
        return HeldPort(address)
    except OSError as error:
        raise FormError(f"no port of {address} can be bound: {error}; is it an address of this host?") from error
