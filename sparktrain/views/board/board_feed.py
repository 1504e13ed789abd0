"""Gives TensorBoard the curves and hyperparameters of a run's trials, from the journal and the stored reports."""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparktrain.base.clock import Clock
from sparktrain.errors import RunDirectoryError, UserError
from sparktrain.rundir.metric_log import block_paths, read_parts
from sparktrain.rundir.report_parts import StepRow
from sparktrain.runs import plan as plans
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.view import RunState, RunView, TrialView
from sparktrain.runs.watcher import Observer
from sparktrain.state.records import DriverStarted
from sparktrain.views.board.hparam_columns import HParamColumns
from sparktrain.views.board.report_events import Point, ReportEvents

if TYPE_CHECKING:
    from sparktrain.runs.stored_reports import StoredReports

MOST_TRIALS = 500
"""TensorBoard is slow with more."""
BEST_TRIALS = 200
"""How many trials of a larger run it shows."""
SHORTEST_PAUSE_S = 3.0
LONGEST_PAUSE_S = 60.0
END_AFTER_S = 15.0
"""A trial's end is written this long after it was seen: its last reports are stored within ten seconds."""
_SHARE = 0.1
"""Most of the time that rounds take."""

logger = logging.getLogger("sparktrain")


class BoardFeed:
    """Reads a run, whichever process drives it, and writes event files. For one thread at a time."""

    def __init__(self, place: RunLocation, clock: Clock) -> None:
        self._place = place
        self._clock = clock
        self._observer = Observer(place, clock)
        self._columns = HParamColumns()
        self._metrics: dict[str, None] = {}
        self._plan = ""
        self._written_space: object = None
        self._paths: tuple[str, ...] | None = None
        self._reports: StoredReports | None = None
        self._final_at: dict[int, float] = {}
        """When a trial was first seen to be final, by this object's clock."""
        self._warned = False
        self._problem = ""

    def follow(self, target: Path, over: threading.Event) -> None:
        """Write event files beneath `target` until `over` is set. Blocks. A failed round is logged, and retried."""
        events = ReportEvents(target)
        while not over.is_set():
            started = self._clock.now()
            try:
                self.round(events)
            except (OSError, UserError) as error:
                self._log(error)
            spent = self._clock.now() - started
            over.wait(min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, spent / _SHARE)))

    def round(self, events: ReportEvents) -> None:
        """Write what is new. Blocks on the store. Raises OSError, and RunDirectoryError for a run that is corrupt."""
        view = self._observer.look()
        # What is stored when the end of a run is seen is complete, so reports are read after the journal.
        self._read_reports()
        shown = self._shown(view)
        for trial in events.trials - {int(trial_view.result.id) for trial_view in shown}:
            events.forget(trial)
        self._write_space(events, view)
        for trial_view in shown:
            self._write_trial(events, trial_view, view)

    def _read_reports(self) -> None:
        from sparktrain.runs.stored_reports import StoredReports

        store = self._place.store
        layout = self._place.layout
        if self._paths is None or self._paths != block_paths(store, layout):
            self._paths, table = read_parts(store, layout)
            self._reports = StoredReports(table)

    def _shown(self, view: RunView) -> list[TrialView]:
        """All trials that have started, or the best of many."""
        started = [trial for trial in view.trials if trial.since is not None]
        if len(started) <= MOST_TRIALS:
            return started
        if not self._warned:
            self._warned = True
            logger.warning(
                "%s: TensorBoard shows the best %d of more than %d trials, all are in `result.history()`",
                view.name,
                BEST_TRIALS,
                MOST_TRIALS,
            )
        sign = -1.0 if view.spec.mode == "max" else 1.0
        # With some hundreds of trials TensorBoard's page is slow, and with 1,000 its process reads for 19 s.
        return sorted(started, key=lambda trial_view: _order(trial_view, view.spec.metric, sign))[:BEST_TRIALS]

    def _write_space(self, events: ReportEvents, view: RunView) -> None:
        digests = (record.plan for record in reversed(self._observer.records) if isinstance(record, DriverStarted))
        if (digest := next(digests, "")) != self._plan:
            self._columns.see_space(plans.read(self._place.store, self._place.layout, digest).space)
            self._plan = digest
        self._columns.see([trial.result.params for trial in view.trials])
        if view.spec.metric is not None:
            self._metrics[view.spec.metric] = None
        self._metrics.update(dict.fromkeys(self._reports.names if self._reports is not None else ()))
        for trial in view.trials:
            self._metrics.update(dict.fromkeys(trial.result.metrics))
        space = self._columns.all, tuple(self._metrics)
        if space != self._written_space:
            events.space(*space)
            self._written_space = space

    def _write_trial(self, events: ReportEvents, trial_view: TrialView, view: RunView) -> None:
        trial = int(trial_view.result.id)
        result = trial_view.result
        if (ended := events.ended(trial)) is not None and ended != result.status:
            events.forget(trial)  # a driver that resumes the run has started it again
        rows = self._reports.of(trial) if self._reports is not None else []
        started_at = rows[0].time if rows else trial_view.since or 0.0
        events.start(trial, self._columns.cells(result.params), started_at)
        events.add(trial, points_of(rows))
        if not result.status.final:
            self._final_at.pop(trial, None)
            return
        final_since = self._final_at.setdefault(trial, self._clock.now())
        if view.state is RunState.RUNNING and self._clock.now() - final_since < END_AFTER_S:
            return
        at = max((row.time for row in rows), default=started_at + result.seconds)
        last = max((row.step for row in rows), default=0)
        unreported = set(result.metrics) - events.names(trial)
        events.add(trial, [Point(name, last, at, result.metrics[name]) for name in sorted(unreported)])
        events.end(trial, result.status, at)

    def _log(self, error: Exception) -> None:
        """Log a problem when it is another one than before; a folder without a readable run has event files alone."""
        if str(error) != self._problem:
            self._problem = str(error)
            unreadable = isinstance(error, RunDirectoryError) and self._paths is None
            level = logging.INFO if unreadable else logging.WARNING
            logger.log(level, "TensorBoard lacks new reports, and reading them is retried: %s", error)


def points_of(rows: Sequence[StepRow]) -> list[Point]:
    """The points of a trial, in the order of their steps: of members that report the same, the lowest rank counts."""
    points: dict[tuple[str, int], Point] = {}
    for row in rows:
        for name, value in row.metrics.items():
            # TensorBoard shows a step that is reported again as a second point, so each step is written once.
            points.setdefault((name, row.step), Point(name, row.step, row.time, float(value)))
    return list(points.values())


def _order(trial_view: TrialView, metric: str | None, sign: float) -> tuple[bool, float, int]:
    """The best trial first, by its result, or by its newest report; without a metric the first ones."""
    value = None
    if metric is not None:
        reported = trial_view.report.metrics if trial_view.report is not None else {}
        value = trial_view.result.metrics.get(metric, reported.get(metric))
    has_value = value is not None and value == value
    return not has_value, sign * float(value) if has_value and value is not None else 0.0, int(trial_view.result.id)
