"""The files of a trial that has ended or still runs: its reports, logs and model."""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from sparktrain.base.ids import CHIEF, Generation, Member, Rank, RunId, TrialId
from sparktrain.base.optional_packages import require
from sparktrain.errors import MissingFileError
from sparktrain.rundir.metric_log import block_paths, read_parts
from sparktrain.runs.additions.trial_labels import LabelKind, add_label
from sparktrain.runs.exported_model import KERAS, find_model, load_other, local_copy, newest_process
from sparktrain.runs.locate import LOOK_TIMEOUT_S, RunLocation, place_of
from sparktrain.store.base import PIECE_BYTES

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

    from sparktrain.rundir.report_parts import StepRow
    from sparktrain.runs.stored_reports import StoredReports

_SHOWN_LOGS = 12


class RunFiles:
    """Reads the files of one run, and keeps the reports that it has read. Any thread may call its methods, which block.

    Everything raises OSError when the store fails.
    """

    def __init__(self, directory: str) -> None:
        """`directory` is that of the run: a path, or a URL."""
        self.directory = directory
        self._lock = threading.Lock()
        self._paths: tuple[str, ...] | None = None
        self._reports: StoredReports | None = None

    def __reduce__(self) -> tuple[type["RunFiles"], tuple[str]]:
        # Without its lock, which cannot be pickled: a result in another process reads the reports itself.
        return RunFiles, (self.directory,)

    def history(self, trial: int | None = None) -> "pd.DataFrame":
        """The reports of the run, or of one trial. Raises RunDirectoryError for reports that are corrupt."""
        require("pandas", "history")
        return self._stored_reports().history(trial)

    def reports(self) -> "pd.DataFrame":
        """Each metric of each report of the run. Raises RunDirectoryError for reports that are corrupt."""
        require("pandas", "reports()")
        return self._stored_reports().long_form()

    def history_columns(self) -> "dict[str, NDArray[Any]]":
        """The columns of `history`, as `stored_reports.columns_of` returns them. Raises as `history`."""
        return self._stored_reports().columns()

    def report_table(self) -> "pa.Table":
        """The rows of `reports` as a table of Arrow. Raises as `reports`."""
        return self._stored_reports().long_table()

    def cached_reports(self, trial: int) -> "Sequence[StepRow]":
        """The reports of a trial that `history` has read before; does not block."""
        return () if self._reports is None else self._reports.of(trial)

    def log(self, trial: int, generation: int, rank: int, lines: int | None) -> str:
        """What the member printed, or the last lines of its newest process: it may have restarted alone.

        Raises MissingFileError, which names the logs that exist.
        """
        place = self._place()
        paths = _logs_of(place, _member(place, trial, generation, rank))
        try:
            content = b"".join(map(place.store.read, paths)) if lines is None else _tail(place, paths[-1], lines)
        except FileNotFoundError:
            raise MissingFileError(_no_log(place, trial, generation, rank)) from None
        return content.decode(errors="backslashreplace")

    def add_label(self, trial: int, kind: LabelKind, text: object) -> str:
        """Store a note or a tag of a trial; returns its text. Raises SpecError."""
        place = self._place()
        return add_label(place.store, place.layout, trial, kind, text)

    def model_path(self, trial: int, generation: int, record: str = "") -> str | None:
        """The path of the model that the chief exported; None when it exported none. Raises RunDirectoryError."""
        place = self._place()
        chief = newest_process(place.store, place.layout, _member(place, trial, generation, CHIEF))
        model = find_model(place.store, chief, record)
        return None if model is None else place.store.where(model.path)

    def load_model(
        self, trial: int, generation: int, options: dict[str, Any], *, record: str = "", otherwise: str = ""
    ) -> Any:
        """The model that the chief exported; `record` is what the run has of it, as `TrialResult.exported`.

        Raises MissingFileError with the text `otherwise` where there is none, and as `load_other`.
        """
        place = self._place()
        member = newest_process(place.store, place.layout, _member(place, trial, generation, CHIEF))
        if (model := find_model(place.store, member, record)) is None:
            raise MissingFileError(
                f"trial {trial} of run {self.directory} has no model ({place.store.where(member.model)} does not "
                f"exist): {otherwise}"
            )
        with local_copy(place.store, model) as copy:
            if model.kind != KERAS:
                return load_other(copy, model._replace(path=place.store.where(model.path)), options)
            import keras

            return keras.saving.load_model(copy, **options)

    def _stored_reports(self) -> "StoredReports":
        from sparktrain.runs.stored_reports import StoredReports

        with self._lock:
            place = self._place()
            if self._reports is None or self._paths != block_paths(place.store, place.layout):
                self._paths, table = read_parts(place.store, place.layout)
                self._reports = StoredReports(table)
            return self._reports

    def _place(self) -> RunLocation:
        return place_of(self.directory, LOOK_TIMEOUT_S)


def _member(place: RunLocation, trial: int, generation: int, rank: int) -> Member:
    return Member(RunId(place.layout.path), TrialId(trial), Generation(generation), Rank(rank))


def _logs_of(place: RunLocation, member: Member) -> list[str]:
    """The logs of all processes that the member has had, the oldest first."""
    log = place.layout.member(member).log
    paths = {place.layout.member_of_log(path): path for path in place.store.list(place.layout.trial(member.trial))}
    logs = {process: path for process, path in paths.items() if process and replace(process, incarnation=0) == member}
    return [logs[process] for process in sorted(logs)] or [log]


def _tail(place: RunLocation, path: str, lines: int) -> bytes:
    """The last lines; reads only the pieces that hold them."""
    start = size = place.store.stat(path).size
    content = b""
    while start > 0 and content.removesuffix(b"\n").count(b"\n") < lines:
        length = min(PIECE_BYTES, start)
        start -= length
        content = place.store.read_range(path, start, length) + content
    content = content[: size - start]
    return b"".join(content.splitlines(keepends=True)[-lines:])


def _no_log(place: RunLocation, trial: int, generation: int, rank: int) -> str:
    paths = place.store.list(place.layout.trial(TrialId(trial)))
    members = sorted(member for path in paths if (member := place.layout.member_of_log(path)) is not None)
    problem = f"trial {trial} of run {place.where} has no log of generation {generation}, rank {rank}"
    if not members:
        return f"{problem}: a log is stored once its trial has run for a moment"
    examples = ", ".join(f"{member.generation}/{member.rank}" for member in members[:_SHOWN_LOGS])
    return f"{problem}; pass generation and rank of one that it has: {examples}{' ...' * (len(members) > _SHOWN_LOGS)}"
