"""The result of a run of one gang: what its call returns, or the error that it raises."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparktrain.base.boundary import users_call
from sparktrain.base.wings import from_wing
from sparktrain.display import gang_text
from sparktrain.display.run_outcome import failure_lines, outcome_lines
from sparktrain.errors import MissingFileError, RunFailedError, RunLostError, RunStoppedError
from sparktrain.results.sweep_result import ResultReading, trial_frame
from sparktrain.runs.failure_table import log_of
from sparktrain.runs.sweep_outcome import GangOutcome, SweepOutcome, SweepStatus
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.trial import TrialStatus

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class RunResult(ResultReading, GangOutcome):
    """The result of a run of one gang."""

    @property
    def _outcome(self) -> SweepOutcome:
        return self._sweep

    @property
    def trials(self) -> tuple[TrialResult, ...]:
        """The only trial, or none, for code that also reads a `SweepResult`."""
        return () if self.trial is None else (self.trial,)

    def to_pandas(self) -> "pd.DataFrame":
        """One row for the only trial, or no row: see `SweepResult.to_pandas`."""
        return trial_frame(SweepOutcome(name=self.name, status=SweepStatus.SUCCEEDED, trials=self.trials))

    @users_call
    def read_log(self, rank: int = 0, generation: int | None = None, tail: int | None = None) -> str:
        """The output of a member as text: see `TrialResult.read_log`."""
        return _only(self.trial).read_log(rank, generation, tail)

    @users_call
    def load_model(self, **options: Any) -> Any:
        """Load the model that the chief exported: see `TrialResult.load_model`."""
        return _only(self.trial).load_model(**options)

    @property
    def log(self) -> tuple[str, ...]:
        """The paths of the logs of the newest gang, by rank."""
        return tuple(member.log for member in self.members)

    def __str__(self) -> str:
        return "\n".join(gang_text.run_lines(self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return str(from_wing("run_html")(self))


class RunEnd(GangOutcome):
    """How a run of one gang ended, whether it succeeded or not."""

    @property
    def sweep(self) -> SweepOutcome:
        """The content of `results.json`."""
        return self._sweep

    def result(self) -> RunResult:
        """The result, with what the training function returned. Raises RunFailedError when it did not return."""
        if self.trial is None or self.trial.status is not TrialStatus.SUCCEEDED:
            raise _error(self._sweep, self.trial)
        return self.as_loaded()

    def as_loaded(self) -> RunResult:
        """The run, whatever its status: the metrics are empty unless the training function has returned."""
        return RunResult(self._sweep, self.model_path)

    def lines(self) -> list[str]:
        """What the command line prints at the end."""
        return outcome_lines(self._sweep, self.model_path)


def _error(sweep: SweepOutcome, trial: TrialResult | None) -> RunFailedError:
    """The error of a run that has no result: the root cause first, then the details."""
    failure = trial.error if trial is not None else None
    kinds = {TrialStatus.LOST: RunLostError, TrialStatus.FAILED: RunFailedError}
    kind = kinds.get(trial.status, RunStoppedError) if trial is not None else RunStoppedError
    error = kind("\n".join(failure_lines(sweep)))
    # As attributes, and not as arguments: so they stay when a process pool pickles the error.
    error.directory = sweep.directory
    if trial is not None:
        error.restarts = tuple(gang_text.restart_lines(trial.restarts))
    if trial is not None and failure is not None:
        error.rank = failure.rank
        error.host = failure.host
        error.traceback = failure.traceback
        error.log_tail = failure.log_tail
        error.log = log_of(trial, failure)
    return error


def _only(trial: TrialResult | None) -> TrialResult:
    if trial is None:
        raise MissingFileError("the run has no trial yet, so it has no log and no model")
    return trial
