"""Measures how long a member waits for rows, so that its run does not take it for hung."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparktrain.base.clock import Clock

AWAIT_S = 1.0
"""A member that has waited so long informs its run."""


class RowWait:
    """The wait of one stream's reader. One thread waits at a time, and another one looks."""

    def __init__(self, inform: Callable[[bool], None], clock: Clock) -> None:
        """`inform` is called with True when a wait has become long, and with False at its end."""
        self._inform = inform
        self._clock = clock
        self._lock = threading.Lock()
        self._since: float | None = None
        self._informed = False

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside, the member waits for rows, or for other members of its gang that may."""
        with self._lock:
            self._since = self._clock.now()
        try:
            yield
        finally:
            with self._lock:
                self._since = None
                if self._informed:
                    self._informed = False
                    self._inform(False)

    def look(self) -> None:
        """Inform the run of a wait that has become long. Does not block; called several times a second."""
        with self._lock:
            if self._since is not None and not self._informed and self._clock.now() >= self._since + AWAIT_S:
                self._informed = True
                self._inform(True)
