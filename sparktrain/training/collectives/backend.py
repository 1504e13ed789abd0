"""Connects a gang to the ring of a framework: the contract of backends, and their list."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from sparktrain.config.backends import BACKENDS, Backend
from sparktrain.protocol.server_keys import ServerKeys
from sparktrain.state.topology import Formation, MemberAddress
from sparktrain.training.collectives.ring import LocalRing, Ring

_NO_SERVERS = ServerKeys()


def _no_port() -> int:
    raise OSError("this member holds no port")


class Exchange(Protocol):
    """Values that the members of a gang share during the rendezvous. One member shares each key, once."""

    def share(self, key: str, value: bytes) -> None:
        """Send `value` (64 KiB at most) to all other members without waiting for them. Raises OSError."""
        ...

    def shared(self, timeout_s: float) -> tuple[str, bytes] | None:
        """A key and value that another member has shared, each once; None when none came within `timeout_s`."""
        ...

    def moved(self, rank: int) -> MemberAddress | None:
        """Where a member is now: one that was lost may be at another place. Any thread may ask; never blocks."""
        ...


@dataclass(frozen=True, kw_only=True)
class RingChanges:
    """How the ring of a gang that heals has changed, and may change."""

    prepared: bool = False
    """The others train: the ring has no connection until this member gets a place in their next one."""
    number: int = 0
    """The number of the ring: 0 for the first of a generation, and one more each time that it heals."""
    resizes: bool = False
    """The gang may continue with fewer members, in the same processes."""


@dataclass(frozen=True)
class Joining:
    """What a backend needs to join the gang's ring."""

    formation: Formation
    exchange: Exchange
    release_port: Callable[[], None]
    """Stop holding this member's port (`formation.mine.port`), so that the backend can bind it. May be called twice."""
    timeout_s: float
    """How long the ring waits for a member that does not answer: in the rendezvous, and in each collective."""
    slow_s: float | None = None
    """How long a collective waits for a member that answers but has not called it yet; None: `timeout_s`."""
    servers: ServerKeys = _NO_SERVERS
    """For a gang with its own parameter servers."""
    incarnation: int = 0
    """How often this member has restarted alone."""
    generation: int = 1
    """How often the gang has started."""
    changes: RingChanges = RingChanges()
    take_port: Callable[[], int] = _no_port
    """A file descriptor of a socket that is bound to this member's port, for a backend that listens on it. It belongs
    to the caller. Raises OSError once the port is released."""

    @property
    def operation_s(self) -> float:
        """How long a collective waits in all."""
        return self.timeout_s if self.slow_s is None else max(self.timeout_s, self.slow_s)


JoinRing = Callable[[Joining], Ring]
"""The one function of a backend's module: connects to the other members. Blocks until all are. Raises FormError."""


def load(backend: Backend) -> JoinRing:
    """The backend's `join`; imports its framework, which may take seconds. Raises ImportError."""
    if not BACKENDS[backend].ring:
        return lambda joining: LocalRing()
    module = importlib.import_module(f"sparktrain.training.frameworks.{BACKENDS[backend].ring}")
    return cast(JoinRing, module.join)
