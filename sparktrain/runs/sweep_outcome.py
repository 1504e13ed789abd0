"""The end of a run as plain data, and which of its trials is best."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from sparktrain.config.objectives import Constraint, Objective, feasible
from sparktrain.config.replication import Replication
from sparktrain.runs.case_result import CaseResult, cases_of
from sparktrain.runs.run_files import RunFiles
from sparktrain.runs.trial_result import MemberResult, TrialResult, stored_in
from sparktrain.state.cases.case_end import CaseEnd
from sparktrain.state.outcome import Failure, Restart
from sparktrain.state.trial import Trial, TrialStatus


class SweepStatus(StrEnum):
    """How a run ended. The value is the word in `results.json`."""

    SUCCEEDED = "succeeded"  # at least one trial succeeded, none was lost, and it was not stopped; some may have failed
    FAILED = "failed"  # no trial succeeded, or so many failed that the run ended early
    STOPPED = "stopped"  # by the user, or by the run's timeout, before every trial had ended
    LOST = "lost"  # a trial was lost more often than it is retried
    RUNNING = "running"  # its driver answers: `sparktrain.load` has read the run before its end


CODE_OF_STATUS = {SweepStatus.SUCCEEDED: 0, SweepStatus.FAILED: 3, SweepStatus.LOST: 4, SweepStatus.STOPPED: 6}
"""Exit codes of programs that run."""


@dataclass(frozen=True, kw_only=True)
class TrialRanking:
    """What the trials of a sweep are compared by."""

    metric: str | None = None
    """What trials are compared by; None when they are not."""
    mode: str = "max"
    """`max` or `min`: which end of the metric is best."""
    other_metrics: tuple[Objective, ...] = ()
    """Metrics that count beside `metric`."""
    constraints: tuple[Constraint, ...] = ()
    """Bounds of metrics; a trial that breaks one is not the best."""
    repeats: int = 1
    """Trials of each set of parameters, with other seeds."""
    folds: int = 1
    """Trials of each of these, one for each fold of the data."""

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The metric and the others; none without a metric."""
        if self.metric is None:
            return ()
        return Objective(self.metric, "min" if self.mode == "min" else "max"), *self.other_metrics

    @property
    def replication(self) -> Replication:
        """How many trials each set of parameters has."""
        return Replication(self.repeats, self.folds)


@dataclass(frozen=True, kw_only=True)
class SweepOutcome(TrialRanking):
    """The fields of a `SweepResult`, which adds what reads files and what draws."""

    name: str
    status: SweepStatus
    seconds: float = 0.0
    """How long drivers have run it; one that was lost counts up to its newest record."""
    wall_seconds: float = 0.0
    """From the start of the first driver to the end, also under no driver; 0 where an older sparktrain wrote it."""
    directory: str | None = None
    """The run directory."""
    trials: tuple[TrialResult, ...] = ()
    """The trials, in the order of their ids."""
    reason: str | None = None
    """Why it was stopped, when it was."""

    _files: ClassVar[RunFiles | None] = None

    def __post_init__(self) -> None:
        if self.directory is None:
            return  # its trials may be of several runs, and know their files
        files = RunFiles(self.directory)
        object.__setattr__(self, "_files", files)
        object.__setattr__(self, "trials", tuple(stored_in(trial, files) for trial in self.trials))

    @cached_property
    def cases(self) -> tuple[CaseResult, ...]:
        """The sets of parameters with the means of their metrics, in the order of their numbers.

        In a sweep without repeats and folds each trial is one.
        """
        return cases_of(self.trials, self.replication)

    @property
    def ranked_cases(self) -> list[CaseResult]:
        """The succeeded cases with a finite mean of the metric, the best first; none without a metric."""
        return in_order(self.cases, self.metric, self.mode, self.constraints)

    @property
    def ranked(self) -> list[TrialResult]:
        """The succeeded trials that have a finite metric, the best first; none without a metric.

        With repeats or folds: those of the best case, then those of the next one.
        """
        trials = in_order(self.trials, self.metric, self.mode, self.constraints)
        if self.replication.size == 1:
            return trials
        place = {case.id: number for number, case in enumerate(self.ranked_cases)}
        of_cases = [trial for trial in trials if self.replication.case(trial.id) in place]
        return sorted(of_cases, key=lambda trial: place[self.replication.case(trial.id)])


@dataclass(frozen=True)
class GangOutcome:
    """What a `RunResult` has without files and plots: a run of one gang is a sweep of one trial."""

    _sweep: SweepOutcome
    """The content of `results.json`: a sweep of one trial, or of none when the run was stopped before it started."""
    model_path: str | None = None
    """The path of the model that the training function exported; None when it exported none."""

    @property
    def name(self) -> str:
        """The name of the run."""
        return self._sweep.name

    @property
    def seconds(self) -> float:
        """How long drivers have run it, as of a sweep."""
        return self._sweep.seconds

    @property
    def wall_seconds(self) -> float:
        """From the start of the first driver to the end, as of a sweep."""
        return self._sweep.wall_seconds

    @property
    def directory(self) -> str | None:
        """The run directory."""
        return self._sweep.directory

    @property
    def trial(self) -> TrialResult | None:
        """The run as its only trial; None when its gang never started."""
        return next(iter(self._sweep.trials), None)

    @property
    def metrics(self) -> dict[str, float]:
        """What the chief returned."""
        return {} if self.trial is None else self.trial.metrics

    @property
    def members(self) -> tuple[MemberResult, ...]:
        """The members of the newest gang, by rank."""
        return () if self.trial is None else self.trial.members

    @property
    def restarts(self) -> tuple[Restart, ...]:
        """Why the gang restarted, and what that cost; oldest first."""
        return () if self.trial is None else self.trial.restarts

    @property
    def unsaved(self) -> str:
        """Why the last save did not become a checkpoint; empty when it did, or nothing was saved."""
        return "" if self.trial is None else self.trial.unsaved

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know about the training, such as data that was not sharded; one line each."""
        return () if self.trial is None else self.trial.notices

    @property
    def extra(self) -> dict[str, Any]:
        """What the chief returned beside numbers: as of a `TrialResult`."""
        return {} if self.trial is None else self.trial.extra

    @property
    def status(self) -> TrialStatus:
        """`succeeded`; of a run that `sparktrain.load` has read, the status of its trial."""
        return TrialStatus.SUCCEEDED if self.trial is None else self.trial.status

    @property
    def error(self) -> Failure | None:
        """Why the run failed, where `sparktrain.load` has read a failed run."""
        return None if self.trial is None else self.trial.error

    @property
    def _files(self) -> RunFiles | None:
        return self._sweep._files


Measured = TrialResult | CaseResult | Trial | CaseEnd
"""What trials and cases are compared as, during a run and after it: each has an id, a status and metrics."""
M = TypeVar("M", bound=Measured)


def best_of(trials: Sequence[M], metric: str | None, mode: str, bounds: Sequence[Constraint] = ()) -> M | None:
    """The succeeded trial with the best finite `metric` that keeps the bounds, the lowest id of equals; None when there
    is none."""
    if metric is None:
        return None
    return min(_comparable(trials, metric, bounds), key=lambda trial: _rank(trial, metric, mode), default=None)


def status_of(trials: Sequence[TrialResult], *, stopped: bool, failing: bool = False) -> SweepStatus:
    """How a run of `trials` ended: `stopped` by the user or its timeout, or early as `failing`."""
    statuses = {trial.status for trial in trials}
    if TrialStatus.LOST in statuses:
        return SweepStatus.LOST
    if stopped:
        return SweepStatus.STOPPED
    if failing:
        return SweepStatus.FAILED
    return SweepStatus.SUCCEEDED if TrialStatus.SUCCEEDED in statuses else SweepStatus.FAILED


def names(of: Iterable[Mapping[str, Any]]) -> list[str]:
    """Every key of the mappings, in the order in which they first come."""
    return list(dict.fromkeys(name for mapping in of for name in mapping))


def metric_names(outcome: SweepOutcome) -> list[str]:
    """Every metric of the trials; the one they are compared by comes first."""
    metrics = names(trial.metrics for trial in outcome.trials)
    return sorted(metrics, key=lambda name: name != outcome.metric)


def _comparable(trials: Sequence[M], metric: str, bounds: Sequence[Constraint]) -> list[M]:
    succeeded = (trial for trial in trials if trial.status is TrialStatus.SUCCEEDED)
    finite = (trial for trial in succeeded if math.isfinite(trial.metrics.get(metric, math.nan)))
    return [trial for trial in finite if feasible(trial.metrics, bounds)]


def in_order(of: Sequence[M], metric: str | None, mode: str, bounds: Sequence[Constraint]) -> list[M]:
    """Those that succeeded with a finite metric and keep all bounds, the best first; none without a metric."""
    candidates = [] if metric is None else _comparable(of, metric, bounds)
    return sorted(candidates, key=lambda candidate: _rank(candidate, metric or "", mode))


def _rank(trial: Measured, metric: str, mode: str) -> tuple[float, int]:
    value = trial.metrics[metric]
    return (value if mode == "min" else -value, trial.id)
