"""Ends a process with an operation of Gloo that waits for ever on connections which are closed.

Gloo fails the operations of a connection that breaks, but for one that starts to send at that moment: it waits for its
timeout of an hour, and with it the step, and whatever would leave the group. Nothing ends it from outside. The others
would wait for this member until their next rings are given up, one after the other.
"""

import os
import sys
from collections.abc import Callable

from sparktrain.base.clock import pause
from sparktrain.base.threads import spawn
from sparktrain.training.collectives.opened_sockets import PeerConnections
from sparktrain.training.frameworks.torch.gloo_threads import busy_threads

STATUS = 70
"""The exit status of such a process."""
_LOOKS = 5
_LOOK_S = 1.0


def end_if_stuck(connections: PeerConnections, is_current: Callable[[], bool]) -> None:
    """Watch for some seconds, in a thread, whether an operation waits on `connections` that have been shut down.

    Then the process ends, and the gang continues as after the loss of it. `is_current()` is False once the member has
    left them.
    """
    spawn(lambda: _watch(connections, is_current), "sparktrain-gloo")


def _watch(connections: PeerConnections, is_current: Callable[[], bool]) -> None:
    before: set[int] = set()
    for _ in range(_LOOKS):
        pause(_LOOK_S)
        if not is_current():
            return
        waiting = set(busy_threads()) if connections.are_closed else set()
        if waiting & before:
            print(
                "[sparktrain] an operation of Gloo waits on connections that are closed, and nothing can end it: this "
                "process ends, so that the gang continues without it",
                file=sys.stderr,
                flush=True,
            )
            os._exit(STATUS)
        before = waiting
