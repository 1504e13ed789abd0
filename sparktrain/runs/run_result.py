"""A run of one gang: a sweep of one trial, whose failure is an error."""

from dataclasses import dataclass

from sparktrain import formatting
from sparktrain.errors import RunFailedError, RunLostError, RunStoppedError
from sparktrain.ids import CHIEF, Generation, Member, RunId
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs import gang_text
from sparktrain.runs.failure_table import log_of
from sparktrain.runs.results import RunResult, SweepResult, TrialResult
from sparktrain.state.outcome import Failure
from sparktrain.state.trial import TrialStatus
from sparktrain.store.base import Store

_TOLD_LINES = 20


@dataclass(frozen=True)
class RunEnd:
    """How a run of one gang ended, well or not."""

    sweep: SweepResult
    """What `results.json` has: a sweep of one trial, or of none when the run was stopped before it began."""
    model_path: str | None
    """Where the model is that the chief of the newest gang exported."""

    def result(self) -> RunResult:
        """What the training function returned. Raises RunFailedError when it did not return."""
        trial = self.trial
        if trial is None or trial.status is not TrialStatus.SUCCEEDED:
            raise _error(self.sweep, trial)
        return self.as_loaded()

    def as_loaded(self) -> RunResult:
        """The run however it stands: the metrics are empty unless the training function has returned."""
        trial = self.trial
        if trial is None:
            return RunResult(
                name=self.sweep.name, metrics={}, seconds=self.sweep.seconds, directory=self.sweep.directory
            )
        return RunResult(
            name=self.sweep.name,
            metrics=trial.metrics,
            seconds=self.sweep.seconds,
            directory=self.sweep.directory,
            model_path=self.model_path,
            members=trial.members,
            restarts=trial.restarts,
            unsaved=trial.unsaved,
            notices=trial.notices,
            trial=trial,
        )

    def lines(self) -> list[str]:
        """What is told at the end, well or not; lines that a program printed are as they came."""
        try:
            return gang_text.run_lines(self.result())
        except RunFailedError as error:
            return str(error).splitlines()

    @property
    def trial(self) -> TrialResult | None:
        """The only trial."""
        return next(iter(self.sweep.trials), None)


def _error(sweep: SweepResult, trial: TrialResult | None) -> RunFailedError:
    """The error of a run that has no result: the root cause first, then what leads to it."""
    failure = trial.error if trial is not None else None
    kinds = {TrialStatus.LOST: RunLostError, TrialStatus.FAILED: RunFailedError}
    kind = kinds.get(trial.status, RunStoppedError) if trial is not None else RunStoppedError
    error = kind("\n".join(_message(sweep, trial, failure)))
    error.directory = sweep.directory
    if trial is not None:
        error.restarts = tuple(gang_text.restart_lines(trial.restarts))
    if trial is not None and failure is not None:
        error.rank, error.host = failure.rank, failure.host
        error.traceback, error.log_tail = failure.traceback, failure.log_tail
        error.log = log_of(trial, failure)
    return error


def model_of(store: Store, layout: RunLayout, trial: TrialResult | None) -> str | None:
    """Where the model is that the chief of the newest gang exported; None when it did not. Blocks on the store."""
    if trial is None or trial.status is not TrialStatus.SUCCEEDED:
        return None
    chief = Member(RunId(layout.path), trial.id, Generation(trial.generations), CHIEF)
    model = layout.member(chief).model
    return store.where(model) if store.exists(model) else None


def _message(sweep: SweepResult, trial: TrialResult | None, failure: Failure | None) -> list[str]:
    if trial is None or failure is None:
        return [f"run {sweep.name} was stopped before it began: {sweep.reason or 'no cause is known'}"]
    who = f"{gang_text.member(failure.rank, failure.host)}: " if failure.rank is not None else ""
    lines = [f"run {sweep.name} {_ended(trial)}: {who}{failure.summary}"]
    if failure.traceback:
        lines.append(failure.traceback.rstrip())
    elif failure.log_tail:
        lines += ["the last lines that it printed:", *(f"    {line}" for line in failure.log_tail[-_TOLD_LINES:])]
    lines += gang_text.restart_lines(trial.restarts)
    if trial.status is TrialStatus.LOST:
        counted = failure.loss is None or not failure.loss.excused
        lines.append(f"{'raise max_retries, or ' if counted else ''}look for what these losses have in common")
    places = {"log": log_of(trial, failure), "run directory": sweep.directory}
    return [*lines, *(f"{name}: {place}" for name, place in places.items() if place is not None)]


def _ended(trial: TrialResult) -> str:
    if trial.status is TrialStatus.LOST:
        again = f", after {formatting.count(len(trial.restarts), 'restart')}" if trial.restarts else ""
        return f"was lost{again}"
    return "failed" if trial.status is TrialStatus.FAILED else "was stopped"
