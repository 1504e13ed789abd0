"""The files of a trial that has ended or still runs: its reports, logs and model."""

import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from sparktrain.errors import MissingFileError
from sparktrain.ids import CHIEF, Generation, Member, Rank, RunId, TrialId
from sparktrain.rundir.metric_log import StepRow, block_paths, read_blocks
from sparktrain.runs.locate import LOOK_TIMEOUT_S, RunLocation, place_of
from sparktrain.store.base import PIECE_BYTES

if TYPE_CHECKING:
    import pandas as pd

INDEX = ("trial", "generation", "rank", "step", "time")
"""The columns of a history before its metrics."""
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
        self._rows: dict[int, list[StepRow]] = {}
        """The rows that count, by trial."""

    def __reduce__(self) -> tuple[type["RunFiles"], tuple[str]]:
        return RunFiles, (self.directory,)

    def history(self, trial: int | None = None) -> "pd.DataFrame":
        """The reports of the run, or of one trial. Raises RunDirectoryError for reports that are corrupt."""
        with self._lock:
            place = self._place()
            if self._paths is None or self._paths != block_paths(place.store, place.layout):
                self._paths, rows = read_blocks(place.store, place.layout)
                self._rows = counting(rows)
            if trial is not None:
                return as_frame(self._rows.get(trial, []))
            return as_frame([row for number in sorted(self._rows) for row in self._rows[number]])

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

    def model_path(self, trial: int, generation: int) -> str | None:
        """The path of the model that the chief exported; None when it exported none."""
        place = self._place()
        path = place.layout.member(_member(place, trial, generation, CHIEF)).model
        return place.store.where(path) if place.store.exists(path) else None

    def load_model(self, trial: int, generation: int, options: dict[str, Any]) -> Any:
        """The Keras model that the chief exported. Raises MissingFileError where there is none, and errors of Keras."""
        place = self._place()
        path = place.layout.member(_member(place, trial, generation, CHIEF)).model
        if not place.store.exists(path):
            raise MissingFileError(
                f"trial {trial} of run {self.directory} has no model ({place.store.where(path)} does not exist): call "
                "ctx.export(model) at the end of the training function; checkpoints hold weights alone"
            )
        import keras

        with tempfile.TemporaryDirectory(prefix="sparktrain-model-") as folder:
            copy = Path(folder, "model.keras")
            with copy.open("wb") as file:
                for piece in place.store.pieces(path):
                    file.write(piece)
            return keras.saving.load_model(copy, **options)

    def _place(self) -> RunLocation:
        return place_of(self.directory, LOOK_TIMEOUT_S)


def counting(rows: Sequence[StepRow]) -> dict[int, list[StepRow]]:
    """The rows that count, by trial, in the order of their steps.

    A generation that resumes, or starts again, reports steps that the one before it had reported too: the newer one
    wins. So a row counts when no later generation of its trial has a row of the same step or of an earlier one.
    """
    trials: dict[int, dict[tuple[int, int, int], StepRow]] = {}
    first: dict[int, dict[int, int]] = {}
    for row in rows:
        # A block may have been written twice, when its store did not answer the first time.
        trials.setdefault(row.trial, {})[row.generation, row.rank, row.step] = row
        steps = first.setdefault(row.trial, {})
        steps[row.generation] = min(row.step, steps.get(row.generation, row.step))
    found = {}
    for trial, of_trial in trials.items():
        limits = _limits(first[trial])
        kept = [row for row in of_trial.values() if (limit := limits[row.generation]) is None or row.step < limit]
        found[trial] = sorted(kept, key=lambda row: (row.step, row.rank))
    return found


def _limits(first: dict[int, int]) -> dict[int, int | None]:
    """For each generation the step from which on a later one counts; None for the newest."""
    limits: dict[int, int | None] = {}
    limit: int | None = None
    for generation in sorted(first, reverse=True):
        limits[generation] = limit
        limit = first[generation] if limit is None else min(limit, first[generation])
    return limits


def as_frame(rows: Sequence[StepRow]) -> "pd.DataFrame":
    """One row for each report, one column for each metric: NaN where a report has none of that name."""
    import numpy as np
    import pandas as pd

    times = np.fromiter((round(row.time * 1e6) for row in rows), np.int64, len(rows))
    columns: dict[str, Any] = {
        "trial": np.fromiter((row.trial for row in rows), np.int64, len(rows)),
        "generation": np.fromiter((row.generation for row in rows), np.int64, len(rows)),
        "rank": np.fromiter((row.rank for row in rows), np.int64, len(rows)),
        "step": np.fromiter((row.step for row in rows), np.int64, len(rows)),
        "time": pd.to_datetime(times, unit="us", utc=True),
    }
    taken = set(columns)
    for name in dict.fromkeys(name for row in rows for name in row.metrics):
        values = (float(row.metrics.get(name, "nan")) for row in rows)
        columns[f"metrics.{name}" if name in taken else name] = np.fromiter(values, np.float64, len(rows))
    return pd.DataFrame(columns)


def _member(place: RunLocation, trial: int, generation: int, rank: int) -> Member:
    return Member(RunId(place.layout.path), TrialId(trial), Generation(generation), Rank(rank))


def _logs_of(place: RunLocation, member: Member) -> list[str]:
    """The logs of all processes that the member has had, the oldest first. The chief never restarts alone."""
    own = place.layout.member(member).log
    if member.rank == CHIEF:
        return [own]
    there = {place.layout.member_of_log(path): path for path in place.store.list(place.layout.trial(member.trial))}
    found = {each: path for each, path in there.items() if each and replace(each, incarnation=0) == member}
    return [found[each] for each in sorted(found)] or [own]


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
    there = sorted(member for path in paths if (member := place.layout.member_of_log(path)) is not None)
    problem = f"trial {trial} of run {place.where} has no log of generation {generation}, rank {rank}"
    if not there:
        return f"{problem}: a log is stored once its trial has run for a moment"
    known = ", ".join(f"{member.generation}/{member.rank}" for member in there[:_SHOWN_LOGS])
    return f"{problem}; pass generation and rank of one that it has: {known}{' ...' * (len(there) > _SHOWN_LOGS)}"
