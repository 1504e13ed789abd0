"""Notices that the host of another member has fallen silent, before the connections to it break.

What a member reports ends nothing: the coordinator asks the agents of that host for a heartbeat, and announces the loss
when none comes. So a look may come long before the time after which a connection breaks, which no short disturbance of
the network is to cause.
"""

import threading
from collections.abc import Callable, Sequence

from sparktrain.base.threads import spawn

LOOK_S = 0.2


class SilenceWatch:
    """The watch of one member, with a thread of its own from the first `start` on."""

    def __init__(self, silent: Callable[[], Sequence[int]], report: Callable[[Sequence[int]], None]) -> None:
        """`silent` returns the members of silent hosts, `report` sends them to the coordinator. Both are called in the
        thread."""
        self._silent = silent
        self._report = report
        self._reported: frozenset[int] = frozenset()
        self._watches = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Look from now on. For the thread that trains."""
        self._watches.set()
        if self._thread is None:
            self._thread = spawn(self._run, "sparktrain-silence")

    def stop(self) -> None:
        """Do not look until the next `start`. Does not block."""
        self._watches.clear()

    def look(self) -> None:
        """Report the members of hosts that have fallen silent since the last look. Raises OSError without an agent."""
        silent = frozenset(self._silent())
        if silent - self._reported:
            self._report(sorted(silent))
        self._reported = silent

    def _run(self) -> None:
        waiting = threading.Event()
        while True:
            self._watches.wait()
            try:
                self.look()
            except OSError:  # the agent is gone, and this process ends
                return
            waiting.wait(LOOK_S)
