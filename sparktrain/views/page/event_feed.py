"""Changes of what a page shows, for any number of readers; what makes them runs only while the page is read."""

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from sparktrain.base.clock import Clock

KEPT_EVENTS = 1000
"""Changes that a reader may fetch later; one who missed more gets everything."""
_READ_S = 30.0
"""The page counts as read for this long: long polls and heartbeats come more often."""
_OVER_S = 1.0
"""Time between two checks for the end of a page while it has no readers."""
_SHARE = 5
"""A computation is repeated after this multiple of the time that it took, at the earliest."""

logger = logging.getLogger("sparktrain")


class EventFeed(ABC):
    """Base of what readers of a page follow. `since` is for any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._news = threading.Condition()
        """Guards all of the feed that readers see."""
        self._events: deque[tuple[int, bytes]] = deque(maxlen=KEPT_EVENTS)
        self._number = 0
        """Of the newest event."""
        self._read_at = float("-inf")

    def since(self, number: int, wait_s: float) -> list[tuple[int, bytes]]:
        """The changes after event `number`, each with its own. Waits for the first one, for `wait_s` at most."""
        self._note_reader()
        with self._news:
            if number > self._number:  # of a server before this one
                number = 0
            self._news.wait_for(lambda: self._number > number, wait_s)
            if self._number - number > len(self._events):
                return [(self._number, self._everything())]
            return [event for event in self._events if event[0] > number]

    @abstractmethod
    def follow(self, over: threading.Event) -> None:
        """Look for changes while the page is read, until `over` is set. Blocks."""

    @abstractmethod
    def _everything(self) -> bytes:
        """An event with all that there is, for a reader that has missed many. Called with the lock."""

    def _announce(self, encode: Callable[[int], bytes]) -> None:
        """Publish an event: `encode` gets its number. Call it with the lock."""
        self._number += 1
        self._events.append((self._number, encode(self._number)))
        self._news.notify_all()

    def _note_reader(self) -> None:
        with self._news:
            self._read_at = self._clock.now()
            self._news.notify_all()

    def _is_read(self) -> bool:
        return self._clock.now() < self._read_at + _READ_S

    def _await_reader(self, over: threading.Event) -> None:
        with self._news:
            while not (self._is_read() or over.is_set()):
                self._news.wait(_OVER_S)

    def _repeat(self, over: threading.Event, look: Callable[[], None], least_s: float) -> None:
        """Call `look` again and again, for a share of the time, while the page has readers."""
        warned = False
        pause_s = 0.0
        while not over.wait(pause_s):
            # Without a reader, the process of the page reads nothing of the run.
            self._await_reader(over)
            if over.is_set():
                return
            started_at = self._clock.now()
            try:
                look()
                warned = False
            except Exception as error:  # what one look cannot show must not keep later ones from readers
                if not warned:
                    logger.warning("the page cannot show all of the run, and tries again: %r", error)
                warned = True
            pause_s = max(least_s, _SHARE * (self._clock.now() - started_at))
