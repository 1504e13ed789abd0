"""Heartbeats of the client of a call, for the coordinator that stands in for it: see `operation_keeper`."""

import logging
from collections.abc import Callable

from sparktrain.rundir.coordinator_folder import CoordinatorFolder

logger = logging.getLogger("sparktrain")


def send_heartbeats(folder: CoordinatorFolder, over: Callable[[float], bool], pause_s: float) -> None:
    """Send them until `over` returns True, which waits for the end of the agents for so many seconds. Blocks."""
    count = 0
    while True:
        try:
            folder.client_heartbeat(count + 1)
            count += 1
        except OSError as error:  # the next one may come through
            logger.info("no heartbeat of the client could be stored: %s", error)
        if over(pause_s):
            return
