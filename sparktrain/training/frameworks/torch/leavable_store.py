"""A store of torch with waits that end when the members form another ring.

torch waits for the keys of other members in C++, until its timeout. A member that is lost meanwhile writes none, and
nothing from outside ends that wait, nor the one for a server that is gone.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta

import torch.distributed as dist

from sparktrain.base.clock import SystemClock, pause

_POLL_S = 0.01


class LeavableStore(dist.Store):  # type: ignore[misc] # torch is not installed where types are checked
    """Passes all calls to another store, and waits by itself. Any thread may call it, those of torch too."""

    def __init__(self, store: dist.Store, timeout: timedelta, is_left: Callable[[], bool]) -> None:
        """`timeout` bounds each wait; `is_left` returns whether the members form another ring."""
        super().__init__()
        self._store = store
        self._timeout = timeout
        self._is_left = is_left
        self._clock = SystemClock()

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Block until there are all `keys`. Raises RuntimeError where the members form another ring, or after the
        timeout."""
        limit = self._timeout if timeout is None else timeout
        until = self._clock.now() + limit.total_seconds()
        while not self._store.check(list(keys)):
            if self._is_left():
                raise RuntimeError(f"another member is lost, and has not written {', '.join(keys)}")
            if self._clock.now() >= until:
                raise RuntimeError(f"no member has written {', '.join(keys)} within {limit.total_seconds():g} s")
            pause(_POLL_S)

    def get(self, key: str) -> bytes:
        """See base class. Waits for the key, as torch expects."""
        self.wait([key])
        return bytes(self._store.get(key))

    def set(self, key: str, value: bytes) -> None:
        """See base class."""
        self._store.set(key, value)

    def add(self, key: str, amount: int) -> int:
        """See base class."""
        return int(self._store.add(key, amount))

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """See base class."""
        return bytes(self._store.compare_set(key, expected, desired))

    def check(self, keys: Sequence[str]) -> bool:
        """See base class."""
        return bool(self._store.check(list(keys)))

    def delete_key(self, key: str) -> bool:
        """See base class."""
        return bool(self._store.delete_key(key))

    def num_keys(self) -> int:
        """See base class."""
        return int(self._store.num_keys())

    def has_extended_api(self) -> bool:
        """See base class: torch then needs no calls for several keys."""
        return False

    def set_timeout(self, timeout: timedelta) -> None:
        """See base class."""
        self._timeout = timeout

    @property
    def timeout(self) -> timedelta:
        """See base class."""
        return self._timeout
