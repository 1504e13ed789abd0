"""Shows by new heartbeats that a coordinator in the cluster lives which this host may be unable to reach.

The age of a heartbeat is never computed, because its time is that of another host's clock.
"""

from sparktrain.clock import Clock
from sparktrain.process_tree import process_state
from sparktrain.rundir.coordinator_folder import newest_heartbeat, this_home
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.layout import RunLayout
from sparktrain.store.base import Store

HEARTBEAT_COUNTS_S = 45.0
"""How long a heartbeat counts, by the clock of the process that watches: a coordinator gives one each ten seconds."""
_LOOK_S = 0.5


class HeartbeatWatch:
    """Watches one run. For one thread at a time."""

    def __init__(self, store: Store, layout: RunLayout, clock: Clock) -> None:
        self._store = store
        self._layout = layout
        self._clock = clock
        self._newest = ""
        self._since = 0.0
        """When this process has seen the newest heartbeat first."""
        self._is_followed = False
        """Whether a heartbeat has come while this process watched."""

    def shows(self, driver: DriverIdentity) -> bool:
        """Whether `driver` lives. Blocks until its next heartbeat where none has come yet, 45 s at most.

        Where its process was one of this host, and has ended, it does not wait. Raises OSError.
        """
        while True:
            newest = newest_heartbeat(self._store, self._layout.coordinators, driver.fingerprint)
            if newest is None:
                return False
            path, heartbeat = newest
            if heartbeat.home == this_home() and process_state(heartbeat.pid) in ("", "Z"):
                return False
            now = self._clock.now()
            if path != self._newest:
                self._is_followed = self._newest != ""
                self._newest = path
                self._since = now
            elif now >= self._since + HEARTBEAT_COUNTS_S:
                return False
            if self._is_followed:
                return True
            self._clock.pause(_LOOK_S)
