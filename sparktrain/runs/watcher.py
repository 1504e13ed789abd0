"""Observes a run that another process may write, on any host, and reads only what is new at each look."""

import os
import socket
from collections.abc import Mapping

from sparktrain.base.clock import Clock
from sparktrain.cluster.yarn_container import this_user
from sparktrain.config.versions import installed_versions
from sparktrain.errors import RunDirectoryError
from sparktrain.rundir.board_address import find_board
from sparktrain.rundir.journal import writer
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.reader import JournalContents, Tail
from sparktrain.rundir.journal.run_claim import is_copy
from sparktrain.runs import plan as plans
from sparktrain.runs.additions.trial_labels import LabelReader, TrialLabels
from sparktrain.runs.heartbeat_watch import HeartbeatWatch
from sparktrain.runs.history import answers, read_overview
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.plan import Plan
from sparktrain.runs.view import RunData, RunDriver, RunView, view_of
from sparktrain.state.records import AnyRecord, DriverStarted, RunEnded

ASK_INTERVAL_S = 15.0
"""Time between two checks whether the driver of a watched run answers."""


LABELS_S = 5.0
"""Time between two looks for notes and tags of a watched run."""


def this_process(clock: Clock, purpose: str) -> DriverIdentity:
    """The identity of this process when it takes a run over for `purpose`; no agent can reach it."""
    versions = installed_versions()
    return DriverIdentity(
        socket.gethostname(),
        os.getpid(),
        clock.wall(),
        versions.get("sparktrain", "unknown"),
        purpose=purpose,
        user=this_user(),
    )


class Observer:
    """Observes a run from any host that reaches its store. Writes nothing. For one thread at a time."""

    def __init__(self, place: RunLocation, clock: Clock) -> None:
        self._place = place
        self._clock = clock
        self._tail = Tail(place.store, place.layout.journal)
        self._heartbeats = HeartbeatWatch(place.store, place.layout, clock)
        self._records: list[AnyRecord] = []
        self._notes: tuple[str, ...] = ()
        self._term = -1
        self._driver: DriverIdentity | None = None
        self._is_copy = False
        self._alive = False
        self._board: str | None = None
        self._asked_at: float | None = None
        self._overview: dict[str, object] | None = None
        self._plans: dict[str, Plan] = {}
        self._view: RunView | None = None
        self._label_reader = LabelReader(place.store, place.layout)
        self._labels: Mapping[int, TrialLabels] = {}
        self._labels_due: float | None = None

    def look(self) -> RunView:
        """The run as it is now; the same object as before when nothing is new. Blocks on the store.

        Checks whether the driver answers, which takes up to 2 s when it does not. A coordinator in the cluster that
        this host cannot reach counts as alive for 45 s after its last heartbeat. Raises RunDirectoryError when
        the run cannot be read, JournalCorruptError, and OSError from the store.
        """
        news = self._read(self._tail.read_new())
        alive = self._is_alive(news)
        board = self._served(alive)
        news = self._read_labels() or news
        if self._view is None or news or (alive, board) != (self._alive, self._board):
            self._alive = alive
            self._board = board
            self._view = view_of(self._run_data())
        return self._view

    @property
    def records(self) -> tuple[AnyRecord, ...]:
        """All records that `look` has read."""
        return tuple(self._records)

    @property
    def plan(self) -> Plan:
        """The plan of the newest driver, once `look` has read it."""
        return self._plan()

    def _read(self, opened: JournalContents) -> bool:
        """Whether anything was new."""
        news = bool(opened.records) or opened.term != self._term
        if opened.afresh:
            self._records = []
            self._notes = ()
            self._overview = None  # the run may be another one, after the first was moved away
        self._records += opened.records
        self._notes = tuple(dict.fromkeys((*self._notes, *opened.notes)))
        if opened.term != self._term:
            self._driver = writer.newest_driver(self._place.store, self._place.layout.journal)
            self._is_copy = self._driver is None and is_copy(self._place.store, self._place.layout.journal)
            self._term = opened.term
            self._asked_at = None
        return news

    def _read_labels(self) -> bool:
        """Whether users have added notes or tags; looks for them each few seconds."""
        now = self._clock.now()
        old_labels = self._labels
        if self._labels_due is not None and now < self._labels_due:
            return False
        self._labels_due = now + LABELS_S
        self._labels = self._label_reader.read()
        return self._labels != old_labels

    def _is_alive(self, news: bool) -> bool:
        last = next((entry for entry in reversed(self._records) if isinstance(entry, RunEnded | DriverStarted)), None)
        if self._driver is None or isinstance(last, RunEnded):
            self._asked_at = None
            return False
        now = self._clock.now()
        if self._asked_at is not None and now < self._asked_at + ASK_INTERVAL_S:
            return self._alive
        # A driver that has just written has shown that it lives: pages over many runs need not connect to it.
        if news and self._alive and self._asked_at is not None and now < self._asked_at + 2 * ASK_INTERVAL_S:
            self._asked_at = now
            return True
        self._asked_at = now
        return answers(self._driver) or self._heartbeats.shows(self._driver)

    def _served(self, alive: bool) -> str | None:
        """The URL of the TensorBoard that the driver serves."""
        if not alive or self._driver is None:
            return None
        return find_board(self._place.store, self._place.layout, self._driver.host, self._driver.pid)

    def _run_data(self) -> RunData:
        plan = self._plan()  # it reads the overview too
        return RunData(
            plan=plan,
            overview=self._overview or {},
            store=self._place.store,
            layout=self._place.layout,
            records=self._records,
            notes=self._notes,
            driver=RunDriver(
                identity=self._driver,
                copied=self._is_copy,
                alive=self._alive,
                same_host=self._driver is not None and self._driver.host == socket.gethostname(),
                board=self._board,
            ),
            labels=self._labels,
        )

    def _plan(self) -> Plan:
        """The plan of the newest driver."""
        store = self._place.store
        layout = self._place.layout
        if self._overview is None:
            try:
                self._overview = read_overview(store, layout)
            except FileNotFoundError as error:
                raise RunDirectoryError(f"{self._place.where} is no run directory: it has no run.json") from error
        digests = (record.plan for record in reversed(self._records) if isinstance(record, DriverStarted))
        digest = next(digests, str(self._overview["plan"]))
        if digest not in self._plans:
            self._plans[digest] = plans.read(store, layout, digest)
        return self._plans[digest]
