"""What a sweep gives back: one result for each trial, and which of them is best."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from sparktrain.boundary import users_call
from sparktrain.config.gang_spec import Role
from sparktrain.errors import MissingFileError, NoBestTrialError
from sparktrain.ids import TrialId
from sparktrain.runs import gang_text, trial_table
from sparktrain.runs.failure_table import failure_frame, no_best
from sparktrain.runs.run_files import RunFiles
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
    RUNNING = "running"  # its driver answers: `sparktrain.load` has read the run before its end


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

    _files: ClassVar[RunFiles | None] = None
    """Of its run; set by the result that the trial is of."""

    @property
    @users_call
    def history(self) -> "pd.DataFrame":
        """What the trial reported, one row for each step: `SweepResult.history` has the columns.

        Blocks on the store. Raises RunDirectoryError for reports that are corrupt, OSError when the store fails.
        """
        return self._stored().history(self.id)

    @users_call
    def read_log(self, rank: int = 0, generation: int | None = None, tail: int | None = None) -> str:
        """What the trial printed, as text: by default all that the chief of its newest generation did.

        Args:
            rank: of the member; 0 is the chief.
            generation: the how manieth start of the trial, from 1; by default the newest.
            tail: only so many lines, the last ones.

        Blocks on the store. Raises MissingFileError, which names the logs that there are, and OSError when the store
        fails.
        """
        return self._stored().log(self.id, self.generations if generation is None else generation, rank, tail)

    @property
    @users_call
    def model_path(self) -> str | None:
        """Where the model is that the chief of the newest generation exported; None when it exported none.

        Blocks on the store. Raises OSError when the store fails.
        """
        return self._stored().model_path(self.id, self.generations)

    @users_call
    def load_model(self, **options: Any) -> Any:
        """The Keras model that the trial exported by `ctx.export`, from any store.

        Imports Keras, and what it needs, in this process. `options` are those of `keras.saving.load_model`, such as
        `custom_objects`, `compile` and `safe_mode`. Blocks on the store and on the local disk. Raises MissingFileError
        when the trial exported no model, OSError when the store fails, and what Keras raises.
        """
        return self._stored().load_model(self.id, self.generations, options)

    def _stored(self) -> RunFiles:
        if self._files is None:
            raise MissingFileError(
                f"trial {self.id} is of no run directory, so it has no history, logs or model: use the trials of a "
                "result, or of sparktrain.load(directory)"
            )
        return self._files

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

    _files: ClassVar[RunFiles | None] = None

    def __post_init__(self) -> None:
        files = None if self.directory is None else RunFiles(self.directory)
        for each in (self, *self.trials):
            object.__setattr__(each, "_files", files)

    @property
    @users_call
    def best(self) -> TrialResult:
        """The succeeded trial with the best metric, the first one of equals.

        Raises NoBestTrialError when there is none: it says how many trials failed, why most of them did, and where the
        log is; or that the run has no metric.
        """
        found = best_of(self.trials, self.metric, self.mode)
        if found is None:
            raise NoBestTrialError(no_best(self))
        return found

    @users_call
    def history(self) -> "pd.DataFrame":
        """What all trials reported: one row for each step of each member that reports.

        The columns are `trial`, `generation`, `rank`, `step`, `time` (UTC, by the clock of the member's host), then one
        for each metric, NaN where a report has none of that name. A metric with the name of one of the first columns
        has the column `metrics.NAME`. Rows are in the order of trials, steps and ranks.

        Each step is there once. A generation that resumes from a checkpoint, or starts again, reports steps that the
        one before it had reported too: the newest generation wins, from the first step on that it has reported itself.

        Blocks on the store. Raises RunDirectoryError for reports that are corrupt, OSError when the store fails, and
        MissingFileError for a result that has no directory.
        """
        return _history(self._files)

    @users_call
    def failures(self) -> "pd.DataFrame":
        """The trials that failed or were lost, one row for each.

        The columns are `trial`, `status`, `kind` (of the error, as in docs/results.md), `error` (its summary), `host`
        and `rank` of the member that failed first, `loss` (what the cluster said), `generations`, and `log` of that
        member.
        """
        return failure_frame(self.trials)

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
    trial: TrialResult | None = field(default=None, compare=False)
    """The run as its only trial; None when its gang was never formed."""

    _files: ClassVar[RunFiles | None] = None

    def __post_init__(self) -> None:
        files = None if self.directory is None else RunFiles(self.directory)
        for each in (self, self.trial):
            if each is not None:
                object.__setattr__(each, "_files", files)

    @property
    def trials(self) -> tuple[TrialResult, ...]:
        """The only trial, or none: as of a `SweepResult`."""
        return () if self.trial is None else (self.trial,)

    @property
    def status(self) -> TrialStatus:
        """`succeeded`; of a run that `sparktrain.load` has read, whatever its trial is."""
        return TrialStatus.SUCCEEDED if self.trial is None else self.trial.status

    @property
    def error(self) -> Failure | None:
        """Why it failed, where `sparktrain.load` has read a run that did."""
        return None if self.trial is None else self.trial.error

    @users_call
    def history(self) -> "pd.DataFrame":
        """What the members reported: as `SweepResult.history`."""
        return _history(self._files)

    def to_pandas(self) -> "pd.DataFrame":
        """The run as its only trial, or no row: as `SweepResult.to_pandas`."""
        return SweepResult(name=self.name, status=SweepStatus.SUCCEEDED, trials=self.trials).to_pandas()

    @users_call
    def failures(self) -> "pd.DataFrame":
        """The run when it failed or was lost: as `SweepResult.failures`, with one row or none."""
        return failure_frame(self.trials)

    @users_call
    def read_log(self, rank: int = 0, generation: int | None = None, tail: int | None = None) -> str:
        """What a member printed, as text: as `TrialResult.read_log`."""
        return _only(self.trial).read_log(rank, generation, tail)

    @users_call
    def load_model(self, **options: Any) -> Any:
        """The Keras model that the chief exported: as `TrialResult.load_model`."""
        return _only(self.trial).load_model(**options)

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


def _only(trial: TrialResult | None) -> TrialResult:
    if trial is None:
        raise MissingFileError("the run has no trial yet, so it has no log and no model")
    return trial


def _history(files: RunFiles | None) -> "pd.DataFrame":
    if files is None:
        raise MissingFileError("the result has no directory, so it has no history: use sparktrain.load(directory)")
    return files.history()
