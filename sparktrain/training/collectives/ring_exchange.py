"""The exchange of a gang in which members may leave their ring for another one: values of each ring stay apart."""

import threading
from collections import deque

from sparktrain.base.clock import Clock
from sparktrain.state.topology import MemberAddress
from sparktrain.training.collectives.backend import Exchange

_SLICE_S = 0.05
"""How often a waiting thread looks for what another thread has received for it."""


class RingExchange(Exchange):
    """Values of the members in one ring of the gang. Any thread may call it.

    Members come to a ring one after the other: values of a later ring wait for this member, those of earlier rings are
    dropped.
    """

    def __init__(self, exchange: Exchange, number: int, clock: Clock) -> None:
        """`number` is that of the ring: 0 for the first of a generation."""
        self._exchange = exchange
        self._clock = clock
        self._lock = threading.Lock()
        self._number = number
        self._newest = number
        """Number of the newest ring that the members form."""
        self._values: dict[int, deque[tuple[str, bytes]]] = {number: deque()}

    @property
    def number(self) -> int:
        """The number of the ring."""
        return self._number

    @property
    def is_left(self) -> bool:
        """Whether the members form a later ring than this one."""
        with self._lock:
            return self._newest > self._number

    def enter(self, number: int) -> None:
        """Exchange values of ring `number` from now on."""
        with self._lock:
            self._number = number
            self._values = {ring: values for ring, values in self._values.items() if ring >= number}
            self._values.setdefault(number, deque())

    def leave(self, number: int) -> None:
        """The members form ring `number`: a thread that waits for a value of an earlier one gets none, at once."""
        with self._lock:
            self._newest = max(self._newest, number)

    def share(self, key: str, value: bytes) -> None:
        """See base class."""
        self._exchange.share(f"r{self._number}/{key}" if self._number else key, value)

    def shared(self, timeout_s: float) -> tuple[str, bytes] | None:
        """See base class."""
        deadline = self._clock.now() + timeout_s
        while True:
            with self._lock:
                if values := self._values[self._number]:
                    return values.popleft()
                if self._newest > self._number:
                    return None
            left_s = max(0.0, deadline - self._clock.now())
            pair = self._exchange.shared(min(left_s, _SLICE_S))
            if pair is not None:
                self._sort(*pair)
            elif left_s == 0.0:
                return None

    def moved(self, rank: int) -> MemberAddress | None:
        """See base class."""
        return self._exchange.moved(rank)

    def _sort(self, key: str, value: bytes) -> None:
        prefix, _, suffix = key.partition("/")
        is_later = prefix.startswith("r") and prefix[1:].isdecimal()
        number = int(prefix[1:]) if is_later else 0
        with self._lock:
            if number >= self._number:
                self._values.setdefault(number, deque()).append((suffix if is_later else key, value))
