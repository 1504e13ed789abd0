"""The result of a sweep: what its call returns."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktrain.base.boundary import users_call
from sparktrain.base.optional_packages import require
from sparktrain.base.wings import from_wing
from sparktrain.config.objectives import constraints as as_constraints
from sparktrain.config.objectives import objectives as as_objectives
from sparktrain.config.param_values import described
from sparktrain.config.quantities import count
from sparktrain.display import trial_table
from sparktrain.errors import MissingFileError, NoBestTrialError, SpecError
from sparktrain.results.study_export import study_of
from sparktrain.runs.case_result import CaseResult
from sparktrain.runs.failure_table import failure_frame, no_best
from sparktrain.runs.pareto import pareto_front_of
from sparktrain.runs.run_files import RunFiles
from sparktrain.runs.sweep_outcome import SweepOutcome, in_order, metric_names, names
from sparktrain.runs.trial_result import TrialResult

if TYPE_CHECKING:
    import pandas as pd
    from optuna.study import Study

    from sparktrain.views.notebook.result_plots import ResultPlots


class ResultReading:
    """What the result of a sweep, and that of a run, read of their trials and of their run directory."""

    @property
    def _outcome(self) -> SweepOutcome:
        """The content of `results.json`."""
        raise NotImplementedError

    def _stored(self) -> RunFiles:
        files = self._outcome._files
        if files is None:
            raise MissingFileError("the result has no directory, so it has no history: use sparktrain.load(directory)")
        return files

    @users_call
    def history(self) -> "pd.DataFrame":
        """The reports of all trials: one row for each step of each member that reports.

        The columns are `trial`, `generation`, `rank`, `step`, `time` (UTC, by the clock of the member's host), then one
        for each metric, which is NaN if a report lacks that metric. A metric with the name of one of the first columns
        has the column `metrics.NAME`. Rows are sorted by trial, step and rank.

        Each step appears once. A generation that resumes from a checkpoint, or restarts, repeats steps that the
        previous one has reported. From the first step that the newest generation reports, its rows replace older ones.

        Blocks on the store. Raises RunDirectoryError for corrupt reports, OSError when the store fails, and
        MissingFileError for a result that has no directory.
        """
        return self._stored().history()

    @users_call
    def reports(self) -> "pd.DataFrame":
        """The reports of all trials in long form: one row for each metric of each report.

        The columns are `trial`, `generation`, `rank`, `step`, `time` (UTC), and `name` and `value` of the metric, as in
        the Parquet files in `reports` of the run directory. The column `superseded` is True if a newer generation has
        reported the step too, so that `history()` omits the row. Rows are sorted by trial, step, rank and generation.
        A report without metrics has no row.

        Blocks on the store. Raises the same errors as `history`.
        """
        return self._stored().reports()

    @users_call
    def report(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the run as one HTML file, which needs no network: results, curves, timeline, cost. Returns its path.

        Args:
            path: the file; by default NAME-report.html in the current folder. An existing file is replaced.

        Blocks on the store. Raises SpecError for a file that cannot be written or a result without a directory,
        RunDirectoryError when nothing of the run can be read, and OSError when the store fails.
        """
        return Path(from_wing("write_report")([self._stored().directory], path))

    @users_call
    def failures(self) -> "pd.DataFrame":
        """The trials that failed or were lost, with one row for each trial.

        The columns are `trial`, `status`, `kind` (of the error, as in docs/results.md), `error` (its summary), `host`
        and `rank` of the member that failed first, `loss` (what the cluster reported), `generations`, and `log` of this
        member.
        """
        return failure_frame(self._outcome.trials)

    @cached_property
    def plot(self) -> "ResultPlots":
        """The views of the run as plots: `history()`, `parallel()`, `curves()`, `timeline()` and `importance()`.

        In a notebook `result.plot.history()` at the end of a cell shows a drawing. For figures to zoom or to change,
        pass `to_study()` to `optuna.visualization`. See docs/notebooks.md.
        """
        return from_wing("ResultPlots")(self._outcome.name, self._outcome.directory)  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True, repr=False)
class SweepResult(ResultReading, SweepOutcome):
    """The result of a sweep."""

    @property
    def _outcome(self) -> SweepOutcome:
        return self

    @property
    @users_call
    def best(self) -> TrialResult:
        """The succeeded trial with the best metric; of equal trials, the first.

        With repeats or folds it is the best trial of the best case, so that you can load its model.

        Raises NoBestTrialError when there is none. The message contains how many trials failed, why most of them
        failed, and where the log is, or that the run has no metric.
        """
        best_trial = next(iter(self.ranked), None)
        if best_trial is None:
            raise NoBestTrialError(no_best(self))
        return best_trial

    @users_call
    def top(self, k: int = 10) -> list[TrialResult]:
        """The best `k` trials, the best first: `top(1)[0]` is `best`. Returns fewer if fewer have a result.

        The list contains succeeded trials with a finite metric, sorted by the metric and `mode`; equal trials stay in
        their order. Trials that violate a constraint come after all others. With repeats or folds the trials of the
        best case come first.

        Does not block. Raises SpecError for `k` below 1, and NoBestTrialError as `best` does.
        """
        limit = count(k, "k", 1)
        keeping = self.ranked
        all_trials = in_order(self.trials, self.metric, self.mode, ())
        keeping_ids = {trial.id for trial in keeping}
        ranking = [*keeping, *(trial for trial in all_trials if trial.id not in keeping_ids)]
        if not ranking:
            raise NoBestTrialError(no_best(self))
        return ranking[:limit]

    @property
    @users_call
    def best_case(self) -> CaseResult:
        """The set of parameters with the best mean of the metric, among those for which each trial has a result.

        Raises NoBestTrialError, as `best` does.
        """
        case = next(iter(self.ranked_cases), None)
        if case is None:
            raise NoBestTrialError(no_best(self))
        return case

    @users_call
    def pareto_front(
        self, objectives: Mapping[str, str | None] | None = None, constraints: Sequence[str] | None = None
    ) -> list[TrialResult]:
        """The trials that no other trial dominates: none is at least as good in all metrics and better in one.

        Only succeeded trials count that have a finite value of each metric, and violate no constraint. They are sorted
        by the first metric, the best first. If trials are equal, all of them are on the front.

        Args:
            objectives: each metric, and which end is better: `{"accuracy": "max", "latency_ms": "min"}`. None stands
                for the end that the metric's name implies. By default the metric and `other_metrics` of the sweep.
            constraints: bounds of metrics, such as `["latency_ms <= 20"]`, with `<=`, `<`, `>=` or `>`. A trial
                without the metric violates its bound. By default those of the sweep.

        Returns an empty list when no trial is left. Does not block. Raises SpecError for values of another kind, and
        for a metric that no succeeded trial has.
        """
        bounds = self.constraints if constraints is None else as_constraints(constraints)
        if objectives is not None:
            return pareto_front_of(self.trials, as_objectives(objectives), bounds)
        if self.metric is None:
            raise SpecError(
                f"run {self.name} has no metric: call pareto_front() with the metrics and their better ends"
            )
        return pareto_front_of(self.trials, self.objectives, bounds)

    def to_pandas(self) -> "pd.DataFrame":
        """One row for each trial: `id`, `params.*`, `metrics.*`, `extra.*`, `status`, `seconds`, `error`, `log`, ....

        With repeats or folds, `case`, `repeat` and `fold` follow `id`. A cell is empty (NaN or None) if its trial has
        no such parameter, metric or error.
        """
        return trial_frame(self)

    @users_call
    def to_study(self, metric: str | None = None) -> "Study":
        """The sweep as a study of Optuna in memory, for `optuna.importance`, `optuna.visualization` and the dashboard.

        Each trial has its parameters, state (`PRUNED` too), value, intermediate values by step, and times. Its user
        attributes are its other metrics, log and error. Distributions are those of the space. A list, or a parameter
        that the space does not describe, is categorical. The name of a nested parameter is its path, such as
        `optimizer.lr`.

        Args:
            metric: the metric that the study compares; by default that of the sweep.

        Blocks on the store. Raises SpecError when Optuna is not installed or there is no such metric,
        RunDirectoryError for corrupt files, and OSError when the store fails.
        """
        return study_of(self, self._files, metric)

    def __str__(self) -> str:
        return trial_table.as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return str(from_wing("sweep_html")(self))


def sweep_result(outcome: SweepOutcome) -> SweepResult:
    """`outcome` as the result that a call returns."""
    return SweepResult(**{field.name: getattr(outcome, field.name) for field in fields(outcome)})


def directory_of(run: object, subject: str = "run") -> str:
    """The run directory that a user names: a path, a URL, or a result. Raises SpecError."""
    directory = getattr(run, "directory", run)
    if not isinstance(directory, str | os.PathLike) or not (path := os.fspath(directory)):
        raise SpecError(f"{subject} is {described(run)}; pass a run directory, or the result of a run")
    return path


def trial_frame(outcome: SweepOutcome) -> "pd.DataFrame":
    """`SweepResult.to_pandas`."""
    require("pandas", "to_pandas()")
    import pandas as pd

    return pd.DataFrame([_row(trial) for trial in outcome.trials], columns=_columns(outcome))


def trial_columns(outcome: SweepOutcome) -> dict[str, list[Any]]:
    """The columns of `SweepResult.to_pandas` for code without pandas; None if a trial has no such value."""
    rows = [_row(trial) for trial in outcome.trials]
    return {name: [row.get(name) for row in rows] for name in _columns(outcome)}


def _columns(outcome: SweepOutcome) -> list[str]:
    named = [f"params.{name}" for name in names(trial.params for trial in outcome.trials)]
    named += [f"metrics.{name}" for name in metric_names(outcome)]
    replica = ["case", "repeat", "fold"] if outcome.replication.size > 1 else []
    named += [f"extra.{name}" for name in names(trial.extra for trial in outcome.trials)]
    columns = ["id", *replica, *named, "status", "seconds", "error", "log", "generations", "host"]
    return [*columns, *(name for name in ("notes", "tags") if any(getattr(trial, name) for trial in outcome.trials))]


def _row(trial: TrialResult) -> dict[str, Any]:
    return {
        "id": trial.id,
        "case": trial.case,
        "repeat": trial.repeat,
        "fold": trial.fold,
        **{f"params.{name}": value for name, value in trial.params.items()},
        **{f"metrics.{name}": value for name, value in trial.metrics.items()},
        **{f"extra.{name}": value for name, value in trial.extra.items()},
        "status": trial.status.value,
        "seconds": trial.seconds,
        "error": trial.error.summary if trial.error else None,
        "log": trial.log,
        "generations": trial.generations,
        "host": trial.host,
        "notes": list(trial.notes),
        "tags": list(trial.tags),
    }
