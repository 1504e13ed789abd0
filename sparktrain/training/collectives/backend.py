"""From a formed gang to a framework's ring: the contract of backends, and the list of them."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from sparktrain.config.gang_spec import Backend
from sparktrain.state.topology import Formation
from sparktrain.training.collectives.ring import LocalRing, Ring


class Exchange(Protocol):
    """Values that the members of a gang share while they form it. Every key is shared by one member, once."""

    def share(self, key: str, value: bytes) -> None:
        """Give `value` (64 KiB at most) to all other members; does not wait for them. Raises OSError."""
        ...

    def shared(self, timeout_s: float) -> tuple[str, bytes] | None:
        """What another member has shared, each value once; None when nothing came within `timeout_s`."""
        ...


@dataclass(frozen=True)
class Joining:
    """All that a member has for joining its gang's ring."""

    formation: Formation
    exchange: Exchange
    release_port: Callable[[], None]
    """Stop holding this member's port (`formation.mine.port`), for the backend binds it now. Again: does nothing."""
    timeout_s: float
    """How long the ring waits for a member that does not answer: while it forms, and in each operation later."""
    slow_s: float | None = None
    """How long an operation waits for a member that answers, but has not called it yet; None: no longer."""

    @property
    def operation_s(self) -> float:
        """How long an operation waits in all."""
        return self.timeout_s if self.slow_s is None else max(self.timeout_s, self.slow_s)


class JoinRing(Protocol):
    """The one function of a backend's module."""

    def __call__(self, joining: Joining) -> Ring:
        """Connect to the other members; returns when all are connected. Raises FormError."""
        ...


_MODULES = {Backend.HOROVOD: "horovod_ring", Backend.TENSORFLOW: "tf_collectives"}


def load(backend: Backend) -> JoinRing:
    """The backend's `join`; imports its framework, which may take seconds. Raises ImportError."""
    if backend is Backend.NONE:
        return lambda joining: LocalRing()
    module = importlib.import_module(f"{__package__}.{_MODULES[backend]}")
    return cast(JoinRing, module.join)
