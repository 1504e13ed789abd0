"""Follows a run directory for the readers of a page: its document as it is now, and the changes since then."""

import threading
from collections.abc import Sequence
from dataclasses import replace

from msgspec import Struct

from sparktrain.base.clock import Clock
from sparktrain.base.threads import spawn
from sparktrain.config.versions import installed_versions
from sparktrain.rundir.metric_log import block_paths
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.view import RunView
from sparktrain.runs.watcher import Observer
from sparktrain.state.records import AnyRecord
from sparktrain.views.page.event_feed import EventFeed
from sparktrain.views.report.encoding import Live, encoded
from sparktrain.views.report.reading import NO_REPORTS, read_inputs, read_reports
from sparktrain.views.report.views.headline_view import Headline, headline_of
from sparktrain.views.report.views.report_document import ReportDocument, Views, views_of
from sparktrain.views.report.views.trial_rows import TrialRow, trial_rows

LOOK_S = 0.5
"""Time between two looks at a run while its page is read. Without readers there are no looks."""
FRESH_S = 5.0
"""How long the first reader after a while waits for a look at the run, before it gets the state of the last one."""
VIEWS_S = 3.0
"""Least time between two computations of the views that take longer."""


class PageEvent(Struct, frozen=True, omit_defaults=True):
    """A change, as a patch of the document."""

    id: int
    headline: Headline
    trials: tuple[TrialRow, ...]
    """The rows that are new or other than before."""
    views: Views | None = None


class PageFeed(EventFeed):
    """The state of one run, for any number of readers. `document` and `since` are for any thread."""

    def __init__(self, place: RunLocation, clock: Clock) -> None:
        """Reads the run. Blocks on the store; raises RunDirectoryError and OSError as `read_inputs`."""
        super().__init__(clock)
        self._place = place
        self._observer = Observer(place, clock)
        # Before the inputs: what comes between the two is read again, and nothing is missed.
        self._blocks: Sequence[str] = block_paths(place.store, place.layout)
        self._inputs = read_inputs(place, clock)
        self._rows = trial_rows(self._inputs)
        self._views = views_of(self._inputs, self._rows)
        self._headline = headline_of(self._inputs)
        self._looked_at = clock.now()
        self._is_followed = False
        self._viewed: RunView = self._inputs.view

    # ---- for readers

    def document(self, live: Live) -> bytes:
        """The JSON of everything, as it is now. Blocks on the store where the page had no readers for a while."""
        with self._news:
            is_stale = self._is_followed and not self._is_read() and self._clock.now() > self._looked_at + LOOK_S
        arrived_at = self._clock.now()
        self._note_reader()
        with self._news:
            if is_stale:
                self._news.wait_for(lambda: self._looked_at >= arrived_at, FRESH_S)
            document = ReportDocument(
                made=self._inputs.now,
                sparktrain=installed_versions().get("sparktrain", "unknown"),
                headline=self._headline,
                trials=self._rows,
                views=self._views,
                live=live,
            )
        return encoded(document)

    def knows(self, trial: int) -> bool:
        """Whether the run has this trial."""
        with self._news:
            return any(row.id == trial for row in self._rows)

    def _everything(self) -> bytes:
        return self._event(self._number, self._rows, self._views)

    # ---- the run

    def follow(self, over: threading.Event) -> None:
        """Look at the run while it is read, until `over` is set; the views have a thread of their own. Blocks."""
        self._is_followed = True
        spawn(lambda: self._repeat(over, self.look_at_reports, VIEWS_S), "sparktrain-page-views")
        self._repeat(over, self.look, LOOK_S)

    def look(self) -> None:
        """Read what is new of the trials, and make an event of it. Raises as `Observer.look`; for one thread."""
        started_at = self._clock.now()
        view = self._observer.look()
        if view is not self._inputs.view:
            self._show(view)
        with self._news:
            self._looked_at = started_at
            self._news.notify_all()

    def _show(self, view: RunView) -> None:
        now = self._clock.wall()
        records = self._observer.records
        inputs = replace(self._inputs, view=view, records=records, now=now)
        self._publish(view, records, headline_of(inputs), trial_rows(inputs))

    def look_at_reports(self) -> None:
        """Compute the views again where anything is new. Blocks on the store; for one thread."""
        blocks = block_paths(self._place.store, self._place.layout)
        inputs = self._inputs
        if blocks != self._blocks:
            problems = [problem for problem in inputs.problems if not problem.startswith(NO_REPORTS)]
            reports = read_reports(self._place, problems)
            inputs = replace(inputs, reports=reports, problems=tuple(problems))
        elif inputs.view is self._viewed:
            return
        views = views_of(inputs, trial_rows(inputs))
        with self._news:
            self._inputs = replace(self._inputs, reports=inputs.reports, problems=inputs.problems)
            self._blocks = blocks
            self._viewed = inputs.view
            self._views = views
            self._announce(lambda number: self._event(number, (), views))

    def _publish(
        self, view: RunView, records: Sequence[AnyRecord], headline: Headline, rows: tuple[TrialRow, ...]
    ) -> None:
        with self._news:
            former_rows = {row.id: row for row in self._rows}
            new_rows = [row for row in rows if former_rows.get(row.id) != row]
            moved = headline != self._headline
            self._inputs = replace(self._inputs, view=view, records=records, now=self._clock.wall())
            self._headline = headline
            self._rows = rows
            if new_rows or moved:
                self._announce(lambda number: self._event(number, new_rows, None))

    def _event(self, number: int, rows: Sequence[TrialRow], views: Views | None) -> bytes:
        return encoded(PageEvent(number, self._headline, tuple(rows), views))
