"""Logs the collectives that this member has started, for others to compare, where a ring runs them eagerly alone."""

import threading

from msgspec import Struct

LOGGED_CALLS = 32
"""How many of the newest collectives the log of a ring keeps."""
RETURNED = "none, for its function has returned"
"""The text of a collective in which a member waits for the others at its end."""


class CollectiveCall(Struct, frozen=True):
    """One collective that a member has started."""

    number: int
    """Its number among all collectives of the ring, from 0."""
    key: str
    """Equal on all members that call the same collective."""
    shown: str
    """The text for messages."""


CLOSING = "closing"
"""The collective in which a member waits for the others once its function has returned."""


class EagerCallLog:
    """The collectives of one ring. Any thread may use it; nothing blocks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[int, CollectiveCall] = {}
        self._count = 0

    def note(self, kind: str, name: str, shapes: tuple[str, ...]) -> None:
        """Log the start of a collective; `shapes` are types and shapes that all members must have in common."""
        text = RETURNED if name == CLOSING else f"{kind} {name!r} of {', '.join(shapes)}"
        with self._lock:
            call = CollectiveCall(self._count, f"{kind} {name} {' '.join(shapes)}", text)
            self._calls[self._count] = call
            self._calls.pop(self._count - LOGGED_CALLS, None)
            self._count += 1

    def restart(self) -> None:
        """Count from 0 again, as all members do that join a ring together."""
        with self._lock:
            self._calls = {}
            self._count = 0

    def newest(self) -> dict[int, CollectiveCall]:
        """The newest collectives, by number."""
        with self._lock:
            return dict(self._calls)
