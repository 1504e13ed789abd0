"""Reads what a report shows from a run directory; what cannot be read is named, and the rest is shown."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparktrain.clock import Clock, SystemClock
from sparktrain.config.versions import installed_versions
from sparktrain.errors import JournalCorruptError, RunDirectoryError, UserError
from sparktrain.report.views.report_document import ReportDocument, document_of
from sparktrain.report.views.run_detail import RunDetail, detail_of
from sparktrain.report.views.run_inputs import RunInputs
from sparktrain.report.views.runs_document import RunDetails
from sparktrain.rundir.journal.reader import read_stable, survey
from sparktrain.rundir.metric_log import read_table
from sparktrain.runs import plan as plans
from sparktrain.runs.history import read_overview
from sparktrain.runs.locate import LOOK_TIMEOUT_S, RunLocation, run_in
from sparktrain.runs.plan import Plan
from sparktrain.runs.view import RunData, RunView, view_of
from sparktrain.runs.watcher import Observer
from sparktrain.state.records import AnyRecord, DriverStarted

if TYPE_CHECKING:
    import pyarrow as pa


def read_document(directory: str, clock: Clock | None = None) -> ReportDocument:
    """The document of the run in `directory`. Blocks on the store, and up to 2 s on a driver that does not answer.

    Raises RunDirectoryError where there is no run, or nothing of it can be read; OSError when the store fails.
    """
    inputs = read_inputs(run_in(directory, LOOK_TIMEOUT_S), clock or SystemClock())
    return document_of(inputs, installed_versions().get("sparktrain", "unknown"))


def read_details(places: Mapping[str, RunLocation | None], clock: Clock) -> RunDetails:
    """What a comparison shows of these runs, by their names; None stands for a run that is no longer there. Blocks.

    Runs that cannot be read have a problem in the answer, and hide no other.
    """
    details: dict[str, RunDetail] = {}
    sources: dict[str, str] = {}
    problems: dict[str, str] = {}
    for name, place in places.items():
        if place is None:
            problems[name] = "the run is no longer there"
            continue
        try:
            detail, source = detail_of(read_inputs(place, clock))
        except (UserError, OSError) as error:
            problems[name] = str(error)
            continue
        details[name] = detail
        if detail.source:
            sources[detail.source] = source
    return RunDetails(details, sources, problems)


def read_inputs(place: RunLocation, clock: Clock) -> RunInputs:
    """The run at this place as it is now; blocks and raises as `read_document`."""
    problems: list[str] = []
    observer = Observer(place, clock)
    try:
        view = observer.look()
        records = observer.records
    except JournalCorruptError as error:
        problems.append(f"the journal is corrupt, so that what came after that is not shown: {error}")
        view, records = _before_corruption(place)
    return RunInputs(
        view=view,
        records=records,
        reports=read_reports(place, problems),
        plan=_plan(place, records, problems),
        problems=tuple(problems),
        now=clock.wall(),
    )


def _before_corruption(place: RunLocation) -> tuple[RunView, tuple[AnyRecord, ...]]:
    """The run as the records before the corrupt one show it."""
    journal = place.layout.journal
    _, replay = read_stable(place.store, journal, (), survey(place.store, journal))
    overview = read_overview(place.store, place.layout)
    plan = plans.read(place.store, place.layout, _digest(replay.records) or str(overview["plan"]))
    data = RunData(
        plan=plan,
        overview=overview,
        store=place.store,
        layout=place.layout,
        records=replay.records,
        notes=replay.notes,
    )
    return view_of(data), replay.records


NO_REPORTS = "the reports cannot be read"


def read_reports(place: RunLocation, problems: list[str]) -> "pa.Table | None":
    """The reports that count; None, with a line in `problems`, where they cannot be read. Blocks. Raises OSError."""
    try:
        return read_table(place.store, place.layout, counting=True)
    except RunDirectoryError as error:
        problems.append(f"{NO_REPORTS}, so that there are no curves: {error}")
        return None


def _plan(place: RunLocation, records: tuple[AnyRecord, ...], problems: list[str]) -> Plan | None:
    digest = _digest(records)
    try:
        return plans.read(place.store, place.layout, digest or str(read_overview(place.store, place.layout)["plan"]))
    except RunDirectoryError as error:
        problems.append(f"the plan cannot be read, so that space and options are not shown: {error}")
        return None


def _digest(records: tuple[AnyRecord, ...]) -> str:
    """The digest of the newest driver's plan; empty where no driver has started."""
    return next((record.plan for record in reversed(records) if isinstance(record, DriverStarted)), "")
