"""Writes the report of one run, or of several beside each other, as one HTML file."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from sparktrain.clock import Clock, SystemClock
from sparktrain.errors import SpecError
from sparktrain.report.html import report_html
from sparktrain.report.reading import read_document
from sparktrain.report.views.comparison_view import MOST_RUNS, comparison_of
from sparktrain.runs.local_output import output_path, replace_file


def write_report(
    directories: Sequence[str],
    path: str | PathLike[str] | None = None,
    clock: Clock | None = None,
    subject: str = "path",
) -> Path:
    """Write the report of the runs in `directories`: of one run all views, of several what differs.

    `path` is the file, by default NAME-report.html in the current folder; one that is there is replaced as a whole.
    Blocks on the stores. Raises RunDirectoryError where there is no run, SpecError for too many runs or a path that
    cannot be written, OSError when a store fails.
    """
    if len(directories) > MOST_RUNS:
        raise SpecError(f"{len(directories)} runs do not fit on one page: compare {MOST_RUNS} at most")
    target = None if path is None else output_path(path, subject)  # found before minutes of reading
    documents = [read_document(directory, clock or SystemClock()) for directory in directories]
    report = documents[0] if len(documents) == 1 else comparison_of(documents)
    if target is None:
        name = "-".join(Path(document.headline.run.name).name for document in documents[:3])
        target = output_path(f"{name[:200]}-report.html", subject)
    replace_file(target, report_html(report), subject)
    return target
