"""Reads what a report shows from a run directory; what cannot be read is named, and the rest is shown."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.config.versions import installed_versions
from sparktrain.errors import JournalCorruptError, RunDirectoryError, UserError
from sparktrain.rundir.journal.reader import read_stable, survey
from sparktrain.rundir.metric_log import read_table
from sparktrain.runs import plan as plans
from sparktrain.runs.history import read_overview
from sparktrain.runs.listing.run_folder import RunFolder
from sparktrain.runs.listing.run_list import list_runs
from sparktrain.runs.locate import LOOK_TIMEOUT_S, RunLocation, run_in
from sparktrain.runs.plan import Plan
from sparktrain.runs.view import RunData, RunView, view_of
from sparktrain.runs.watcher import Observer
from sparktrain.state.records import AnyRecord, DriverStarted
from sparktrain.store.parallel import spread
from sparktrain.views.report.encoding import encoded
from sparktrain.views.report.views.report_document import ReportDocument, document_of
from sparktrain.views.report.views.run_detail import RunDetail, detail_of, digest_of
from sparktrain.views.report.views.run_inputs import RunInputs
from sparktrain.views.report.views.runs_document import RunDetails, RunsDocument

if TYPE_CHECKING:
    import pyarrow as pa

MOST_DETAILED = 200
"""A file has curves and facts of so many runs, the newest ones: each takes a read of its journal and reports."""
MOST_DETAIL_BYTES = 8 * 2**20
"""Their limit in the file, which a mail should still take."""
_READERS = 8
"""How many runs are read concurrently."""


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
    readings = spread(lambda place, _: _detail(place, clock), list(places.values()), _READERS)
    for name, reading in zip(places, readings, strict=True):
        if isinstance(reading, str):
            problems[name] = reading
            continue
        details[name], source = reading
        if source:
            sources[digest_of(source)] = source
    return RunDetails(details, sources, problems)


def _detail(place: RunLocation | None, clock: Clock) -> tuple[RunDetail, str] | str:
    """The detail of a run and its source, or why it cannot be read."""
    if place is None:
        return "the run is no longer there"
    try:
        return detail_of(read_inputs(place, clock))
    except (UserError, OSError) as error:
        return str(error)


def read_runs(folder: RunFolder, clock: Clock) -> RunsDocument:
    """The document of a directory of runs, with the details of the newest ones. Blocks on the store.

    Raises OSError when the store fails.
    """
    contents = folder.look()
    rows = [run.row for run in list_runs(contents.places, clock)]
    newest = sorted((row for row in rows if row.readable), key=lambda row: -(row.clock.started or 0.0))[:MOST_DETAILED]
    details: dict[str, RunDetail] = {}
    sources: dict[str, str] = {}
    size = 0
    for start in range(0, len(newest), _READERS):
        part = read_details({row.id: folder.place(row.id) for row in newest[start : start + _READERS]}, clock)
        size += len(encoded(part))
        if size > MOST_DETAIL_BYTES:
            break
        details |= part.details
        sources |= part.sources
    return RunsDocument(
        kind="runs",
        made=clock.wall(),
        sparktrain=installed_versions().get("sparktrain", "unknown"),
        directory=folder.where,
        rows=rows,
        left_out=contents.left_out,
        details=details,
        sources=sources,
    )


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
