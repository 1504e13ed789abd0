"""Writes the report of one run, of several beside each other, or of a directory of runs, as one HTML file."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path, PurePosixPath

from msgspec import Struct

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.errors import SpecError
from sparktrain.runs.listing.run_folder import RunFolder
from sparktrain.runs.local_output import output_path, replace_file
from sparktrain.views.report.html import report_html
from sparktrain.views.report.reading import read_document, read_runs
from sparktrain.views.report.views.comparison_view import MOST_RUNS, comparison_of


def write_report(
    directories: Sequence[str],
    path: str | PathLike[str] | None = None,
    clock: Clock | None = None,
    subject: str = "path",
) -> Path:
    """Write the report of the runs in `directories`: of one run all views, of several what differs.

    Of one directory that holds runs, their table, with what compares the newest ones.

    `path` is the file, by default NAME-report.html in the current folder; one that is there is replaced as a whole.
    Blocks on the stores. Raises RunDirectoryError where there is no run, SpecError for too many runs or a path that
    cannot be written, OSError when a store fails.
    """
    if len(directories) > MOST_RUNS:
        raise SpecError(f"{len(directories)} runs do not fit on one page: compare {MOST_RUNS} at most")
    target = None if path is None else output_path(path, subject)  # found before minutes of reading
    report, name = _document(directories, clock or SystemClock())
    if target is None:
        target = output_path(f"{name[:200]}-report.html", subject)
    replace_file(target, report_html(report), subject)
    return target


def _document(directories: Sequence[str], clock: Clock) -> tuple[Struct, str]:
    """The document of the report, and its name."""
    folder = RunFolder.of(directories[0], clock) if len(directories) == 1 else None
    if isinstance(folder, RunFolder):
        return read_runs(folder, clock), PurePosixPath(folder.where.rstrip("/")).name or "runs"
    documents = [read_document(directory, clock) for directory in directories]
    name = "-".join(Path(document.headline.run.name).name for document in documents[:3])
    return documents[0] if len(documents) == 1 else comparison_of(documents), name
