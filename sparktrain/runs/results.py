"""What a sweep gives back: one result for each trial, and which of them is best."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sparktrain.config.gang_spec import Role
from sparktrain.ids import TrialId
from sparktrain.runs import gang_text, trial_table
from sparktrain.state.outcome import Failure, Restart
from sparktrain.state.trial import TrialStatus

if TYPE_CHECKING:
    import pandas as pd


class SweepStatus(StrEnum):
    """How a run ended. The value is the word in `results.json`."""

    SUCCEEDED = "succeeded"  # at least one trial succeeded, none was lost, and it was not stopped; some may have failed
    FAILED = "failed"  # no trial succeeded, or so many failed that the run ended early
    STOPPED = "stopped"  # by the user, or by the run's timeout, before every trial had ended
    LOST = "lost"  # a trial was lost more often than it is retried


CODE_OF_STATUS = {SweepStatus.SUCCEEDED: 0, SweepStatus.FAILED: 3, SweepStatus.LOST: 4, SweepStatus.STOPPED: 6}
"""Exit codes of programs that run."""


@dataclass(frozen=True, kw_only=True)
class MemberResult:
    """One member of the newest gang of a trial."""

    rank: int
    role: Role
    host: str | None
    log: str


@dataclass(frozen=True, kw_only=True, repr=False)
class TrialResult:
    """The end of one trial."""

    id: TrialId
    params: dict[str, Any]
    status: TrialStatus
    """`succeeded`, `failed` (the training function's own fault), `lost` (the cluster's) or `stopped`."""
    metrics: dict[str, float] = field(default_factory=dict)
    """What the training function returned; empty unless it succeeded."""
    seconds: float = 0.0
    """Of the training function, in its newest generation."""
    log: str | None = None
    """Where the log of the chief's newest generation is; None when it never ran."""
    error: Failure | None = None
    """The root cause, unless it succeeded."""
    generations: int = 0
    """How many times it was started."""
    host: str | None = None
    """Of the chief's newest generation."""
    members: tuple[MemberResult, ...] = ()
    """Of its newest gang, by rank; none when it never ran."""
    restarts: tuple[Restart, ...] = ()
    """Why its gang was formed again, and what that cost; oldest first."""
    unsaved: str = ""
    """Why what it saved last did not become a checkpoint; empty when it did, or nothing was saved."""
    notices: tuple[str, ...] = ()
    """What the user should know of how it trained, such as data that was not shared out; one line each."""

    def __repr__(self) -> str:
        parts = [f"id={self.id}", f"status={self.status.value!r}", f"params={self.params!r}"]
        if self.metrics:
            parts.append(f"metrics={self.metrics!r}")
        if self.error is not None:
            parts.append(f"error={self.error.summary!r}")
        return f"TrialResult({', '.join(parts)}, seconds={self.seconds:.3g})"


@dataclass(frozen=True, kw_only=True, repr=False)
class SweepResult:
    """The end of a run."""

    name: str
    status: SweepStatus
    metric: str | None = None
    """What trials are compared by; None when they are not."""
    mode: str = "max"
    """`max` or `min`: which end of the metric is best."""
    seconds: float = 0.0
    directory: str | None = None
    """Where the run's files are."""
    trials: tuple[TrialResult, ...] = ()
    """In the order of their ids."""
    reason: str | None = None
    """Why it was stopped, when it was."""

    @property
    def best(self) -> TrialResult | None:
        """The succeeded trial with the best metric, the first one of equals; None without a metric or a success."""
        return best_of(self.trials, self.metric, self.mode)

    @property
    def ranked(self) -> list[TrialResult]:
        """The succeeded trials that have a finite metric, the best first; none without a metric."""
        metric = self.metric
        if metric is None:
            return []
        return sorted(_comparable(self.trials, metric), key=lambda trial: _rank(trial, metric, self.mode))

    def to_pandas(self) -> "pd.DataFrame":
        """One row for each trial: `id`, `params.*`, `metrics.*`, `status`, `seconds`, `error`, `log`, and so on.

        A cell is empty (NaN or None) where a trial has no such parameter, metric or error.
        """
        import pandas as pd

        names = [f"params.{name}" for name in trial_table.names(trial.params for trial in self.trials)]
        names += [f"metrics.{name}" for name in trial_table.metric_names(self)]
        columns = ["id", *names, "status", "seconds", "error", "log", "generations", "host"]
        return pd.DataFrame([_record(trial) for trial in self.trials], columns=columns)

    def __str__(self) -> str:
        return trial_table.as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return trial_table.as_html(self)


@dataclass(frozen=True, kw_only=True, repr=False)
class RunResult:
    """The end of a run of one gang whose training function returned."""

    name: str
    metrics: dict[str, float]
    """What the chief returned."""
    seconds: float
    """From the begin of the run to its end."""
    directory: str | None
    """Where the run's files are."""
    model_path: str | None = None
    """Where the model is that the training function exported; None when it exported none."""
    members: tuple[MemberResult, ...] = ()
    """Of its newest gang, by rank."""
    restarts: tuple[Restart, ...] = ()
    """Why its gang was formed again, and what that cost; oldest first."""
    unsaved: str = ""
    """Why what it saved last did not become a checkpoint; empty when it did, or nothing was saved."""
    notices: tuple[str, ...] = ()
    """What the user should know of how it trained, such as data that was not shared out; one line each."""

    @property
    def log(self) -> tuple[str, ...]:
        """Where the log of each member of the newest gang is, by rank."""
        return tuple(member.log for member in self.members)

    def __str__(self) -> str:
        return "\n".join(gang_text.run_lines(self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return gang_text.run_html(self)


class Measured(Protocol):
    """A trial, as far as it is compared with others."""

    @property
    def id(self) -> TrialId:
        """Its number."""
        ...

    @property
    def status(self) -> TrialStatus:
        """How it stands."""
        ...

    @property
    def metrics(self) -> Mapping[str, float]:
        """Its result, once it has succeeded."""
        ...


M = TypeVar("M", bound=Measured)


def best_of(trials: Sequence[M], metric: str | None, mode: str) -> M | None:
    """The succeeded trial with the best finite `metric`, the lowest id of equals; None when there is none."""
    if metric is None:
        return None
    return min(_comparable(trials, metric), key=lambda trial: _rank(trial, metric, mode), default=None)


def status_of(trials: Sequence[TrialResult], *, stopped: bool, failing: bool = False) -> SweepStatus:
    """How a run of `trials` ended: `stopped` by the user or its timeout, or early as `failing`."""
    found = {trial.status for trial in trials}
    if TrialStatus.LOST in found:
        return SweepStatus.LOST
    if stopped:
        return SweepStatus.STOPPED
    if failing:
        return SweepStatus.FAILED
    return SweepStatus.SUCCEEDED if TrialStatus.SUCCEEDED in found else SweepStatus.FAILED


def _comparable(trials: Sequence[M], metric: str) -> list[M]:
    return [
        trial
        for trial in trials
        if trial.status is TrialStatus.SUCCEEDED and math.isfinite(trial.metrics.get(metric, math.nan))
    ]


def _rank(trial: Measured, metric: str, mode: str) -> tuple[float, int]:
    value = trial.metrics[metric]
    return (value if mode == "min" else -value, trial.id)


def _record(trial: TrialResult) -> dict[str, Any]:
    return {
        "id": trial.id,
        **{f"params.{name}": value for name, value in trial.params.items()},
        **{f"metrics.{name}": value for name, value in trial.metrics.items()},
        "status": trial.status.value,
        "seconds": trial.seconds,
        "error": trial.error.summary if trial.error else None,
        "log": trial.log,
        "generations": trial.generations,
        "host": trial.host,
    }
