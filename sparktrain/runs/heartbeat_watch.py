"""Shows by new heartbeats that a coordinator in the cluster lives which this host may be unable to reach.

The time in it, of another clock, counts for nothing. What counts is the age of its file by the clock of the store, and
how long this process has seen no newer one.
"""

from sparktrain.base.clock import Clock
from sparktrain.base.process_tree import process_state
from sparktrain.rundir.coordinator_folder import newest_heartbeat, this_home
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.layout import RunLayout
from sparktrain.store.base import Store

HEARTBEAT_COUNTS_S = 45.0
"""How long a heartbeat counts: a coordinator gives one each ten seconds."""
_LOOK_S = 0.5


class HeartbeatWatch:
    """Watches one run. For one thread at a time; methods block on the store, and raise OSError."""

    def __init__(self, store: Store, layout: RunLayout, clock: Clock) -> None:
        self._store = store
        self._layout = layout
        self._clock = clock
        self._newest = ""
        self._since = 0.0
        """When the newest heartbeat was written, or this process has seen it first."""
        self._is_followed = False
        """Whether a heartbeat has come while this process watched."""

    def shows(self, driver: DriverIdentity) -> bool:
        """Whether `driver` lives, by its newest heartbeat so far: it may have died up to 45 s ago on another host."""
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
            self._since = now if self._is_followed else now - self._age_s(path)
        return now < self._since + HEARTBEAT_COUNTS_S

    def proves(self, driver: DriverIdentity) -> bool:
        """Whether `driver` lives. Blocks until its next heartbeat where none has come yet, 45 s at most."""
        while self.shows(driver):
            if self._is_followed:
                return True
            self._clock.pause(_LOOK_S)
        return False

    def _age_s(self, path: str) -> float:
        try:
            return self._store.now(self._layout.path) - self._store.stat(path).modified
        except OSError:  # the next heartbeat is there, or this process may only read: it learns more while it watches
            return 0.0
