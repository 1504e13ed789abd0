"""Logs the collectives that this member has started, for others to compare, where a ring runs them eagerly alone."""

import threading

from sparktrain.training.collectives.collective_call import LOGGED_CALLS, RETURNED, CollectiveCall

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
