"""The learning curves that a simulation replays: from a run directory, or from a file of comma-separated values."""

import csv
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from sparktrain.base.boundary import users_call
from sparktrain.base.ids import CHIEF
from sparktrain.config.metric_names import Mode, mode_of
from sparktrain.config.param_values import shown
from sparktrain.errors import SpecError
from sparktrain.ops.simulation.recorded_search import RecordedCases
from sparktrain.results.run_result import RunResult
from sparktrain.results.stored_result import load
from sparktrain.results.sweep_result import SweepResult
from sparktrain.rundir.report_parts import INDEX
from sparktrain.runs.history import look
from sparktrain.runs.locate import LOOK_TIMEOUT_S, place_of
from sparktrain.runs.run_files import RunFiles
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.trial import TrialStatus

_ENDED = (TrialStatus.SUCCEEDED, TrialStatus.PRUNED)
COLUMNS = ("trial", "step", "seconds")
"""The first columns of a file; the next one is the metric."""


class CurvePoint(NamedTuple):
    """One report of a trial."""

    step: int
    seconds: float
    """Since the trial started."""
    value: float


class LearningCurve(NamedTuple):
    """What one trial reported, and how long it took."""

    points: tuple[CurvePoint, ...]
    seconds: float
    """From its start to its end."""
    is_complete: bool = True
    """The trial ran to its end; one that a rule had stopped has no more points."""

    @property
    def last(self) -> float:
        """The value of the last report; NaN without any."""
        return self.points[-1].value if self.points else math.nan


class Recorded(NamedTuple):
    """The curves of one sweep."""

    name: str
    metric: str
    mode: Mode
    curves: tuple[LearningCurve, ...]
    names: tuple[int | str, ...]
    """What the run or the file calls each trial."""
    cases: RecordedCases | None = None
    """The parameters of the trials; a file of curves has none."""


@users_call
def from_run(directory: str, metric: str | None = None, mode: Mode | None = None) -> Recorded:
    """The curves of the trials that have ended in a run directory, by number. Blocks on the store.

    Between two reports time passes as it did; before the first one, as much as between others. Trials that failed, or
    did not end, are left out. Raises SpecError where there are no curves or no metric, and what `load` raises.
    """
    result = load(directory)
    if isinstance(result, RunResult):
        raise SpecError(f"{directory} holds a run of one gang: only a sweep can be simulated")
    if result.replication.size > 1:
        raise SpecError(
            f"{directory} holds a sweep with {result.replication.size} trials of each set of parameters, and a "
            "simulation compares single trials: pass a run without repeats and folds, or a file of curves"
        )
    name = metric or result.metric
    if name is None:
        raise SpecError(f"run {result.name} has no metric: pass metric= (--metric), the name of what its trials report")
    # As columns: a simulation needs no pandas, which a driver may lack.
    history = RunFiles(directory).history_columns()
    if name not in history:
        hint = ", ".join(repr(column) for column in history if column not in INDEX) or "nothing"
        raise SpecError(f"no trial of run {result.name} has reported {name!r}, but {hint}: pass one of these as metric")
    reported = (history["rank"] == CHIEF) & ~np.isnan(history[name])
    pairs: list[tuple[TrialResult, LearningCurve]] = []
    for trial in result.trials:
        rows = np.flatnonzero(reported & (history["trial"] == int(trial.id)))
        if trial.status in _ENDED and len(rows):
            steps, times, values = (history[column][rows].tolist() for column in ("step", "time", name))
            pairs.append((trial, _curve(trial, steps, [time / 1e6 for time in times], values)))
    if not pairs:
        raise SpecError(f"run {result.name} has no trial that ended and reported {name!r}: there is nothing to replay")
    trials, curves = zip(*pairs, strict=True)
    numbers = tuple(int(ended_trial.id) for ended_trial in trials)
    return Recorded(result.name, name, mode_of(name, mode or result.mode), curves, numbers, _cases(result, trials))


def _cases(result: SweepResult, trials: Sequence[TrialResult]) -> RecordedCases | None:
    assert result.directory is not None
    place = place_of(result.directory, LOOK_TIMEOUT_S)
    stored = look(place.store, place.layout)
    return None if stored is None else RecordedCases(tuple(trial.params for trial in trials), stored.plan.space)


def _curve(trial: TrialResult, steps: Sequence[int], times: Sequence[float], values: Sequence[float]) -> LearningCurve:
    gaps = [max(0.0, later - earlier) for earlier, later in pairwise(times)]
    start = median(gaps) if gaps else trial.seconds
    at = start
    points = []
    for step, gap, value in zip(steps, [0.0, *gaps], values, strict=True):
        at += gap
        points.append(CurvePoint(int(step), at, float(value)))
    return LearningCurve(tuple(points), max(at, trial.seconds), trial.status is TrialStatus.SUCCEEDED)


@users_call
def from_csv(path: str, metric: str | None = None, mode: Mode | None = None) -> Recorded:
    """The curves in a file with a heading and the columns `trial`, `step`, `seconds` since its start, and the metric.

    Rows may come in any order. Raises SpecError for anything else, with the line.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SpecError(f"{path} cannot be read ({error}): pass a run directory, or a file of CSV") from error
    heading = [cell.strip() for cell in rows[0]] if rows else []
    if tuple(heading[:3]) != COLUMNS or len(heading) != len(COLUMNS) + 1:
        raise SpecError(
            f"{path} starts with {shown(','.join(heading))}: its first line must be trial,step,seconds, and the name "
            "of the metric"
        )
    if metric not in (None, heading[3]):
        raise SpecError(f"{path} has the metric {heading[3]!r}, and {metric!r} was asked for: pass that one, or none")
    trials: dict[str, list[CurvePoint]] = {}
    for number, row in enumerate(rows[1:], 2):
        if row:
            trials.setdefault(row[0].strip(), []).append(_point(path, number, row))
    if not trials:
        raise SpecError(f"{path} has a heading and no rows: there is nothing to replay")
    curves = tuple(of_points(points) for points in trials.values())
    return Recorded(Path(path).name, heading[3], mode_of(heading[3], mode), curves, tuple(trials))


def of_points(points: Iterable[CurvePoint]) -> LearningCurve:
    """The curve of a trial that ended with its last report."""
    ordered = sorted(points)
    return LearningCurve(tuple(ordered), ordered[-1].seconds)


def _point(path: str, number: int, row: Sequence[str]) -> CurvePoint:
    try:
        _, step, seconds, value = row
        point = CurvePoint(int(step), float(seconds), float(value))
        if point.step < 0 or not 0 <= point.seconds < math.inf:
            raise ValueError
    except ValueError:
        raise SpecError(
            f"{path}:{number}: {shown(','.join(row))} is no row of trial, step (a whole number from 0), seconds (from "
            "0), and value: correct it"
        ) from None
    return point
