"""The pools of calls that have a session and no pool: a call that comes while others have the slots joins theirs.

A call opens a pool of its own if the session has slots for it. Else it is a further call on the pool that has them,
which shares its agents by weight and priority, and gets the slots that no pool has. A pool closes with its last call.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sparktrain.driver.engines.engine import Engine
from sparktrain.driver.pool import AgentPool
from sparktrain.errors import PoolError

CLOSING_TIMEOUT_S = 30.0
"""How long a call waits for the slots of a pool that closes."""


@dataclass
class _SharedPool:
    pool: AgentPool
    calls: int = 1
    closed: threading.Event = field(default_factory=threading.Event)


class SessionPools:
    """The open pools of calls of this process. Its methods may be called in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[_SharedPool] = []
        self._closing: list[_SharedPool] = []

    @contextmanager
    def entered(self, pool: AgentPool, least: int, *, submit: bool) -> Iterator[AgentPool]:
        """`pool`, which is opened here, for one call, or one that stands for it and has at least `least` agents.

        `submit`: its agents start at once. Blocks for some seconds at most. Raises SessionError, and PoolError when
        others have the slots and share none.
        """
        self._wait_for_closing(pool.engine)
        with self._lock:
            shared = self._entered(pool, least, submit=submit)
        try:
            yield shared.pool
        finally:
            self._leave(shared)

    def _wait_for_closing(self, engine: Engine) -> None:
        with self._lock:
            closing = [shared for shared in self._closing if shared.pool.engine.holder is engine.holder]
        for shared in closing:
            shared.closed.wait(CLOSING_TIMEOUT_S)

    def _entered(self, pool: AgentPool, least: int, *, submit: bool) -> _SharedPool:
        try:
            pool.open(agents=submit)
        except PoolError:
            shared = self._joined(pool, least)
            if shared is None:
                raise
            return shared
        shared = _SharedPool(pool)
        self._open.append(shared)
        return shared

    def _joined(self, pool: AgentPool, least: int) -> _SharedPool | None:
        """The pool that a call joins in place of `pool`, if any can take it."""
        for shared in self._open:
            if shared.pool.can_stand_for(pool):
                shared.pool.grow(pool.agents)
                if shared.pool.agents >= least:
                    shared.calls += 1
                    return shared
        return None

    def _leave(self, shared: _SharedPool) -> None:
        with self._lock:
            shared.calls -= 1
            if shared.calls:
                return
            self._open.remove(shared)
            self._closing.append(shared)
        try:
            shared.pool.close()
        finally:
            shared.closed.set()
            with self._lock:
                self._closing.remove(shared)


SESSION_POOLS = SessionPools()
"""Those of this process."""
