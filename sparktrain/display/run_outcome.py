"""The end of a run of one gang as lines: its result, or why it has none."""

from sparktrain.base import formatting
from sparktrain.display import gang_text
from sparktrain.runs.failure_table import log_of
from sparktrain.runs.sweep_outcome import GangOutcome, SweepOutcome
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.trial import TrialStatus

_PRINTED_LINES = 20


def outcome_lines(sweep: SweepOutcome, model_path: str | None) -> list[str]:
    """The lines of a run that succeeded or not; lines that a program printed are as they came."""
    trial = next(iter(sweep.trials), None)
    if trial is not None and trial.status is TrialStatus.SUCCEEDED:
        return gang_text.run_lines(GangOutcome(sweep, model_path))
    return "\n".join(failure_lines(sweep)).splitlines()


def failure_lines(sweep: SweepOutcome) -> list[str]:
    """Why a run has no result: the root cause first, then what leads to it."""
    trial = next(iter(sweep.trials), None)
    failure = trial.error if trial is not None else None
    if trial is None or failure is None:
        return [f"run {sweep.name} was stopped before it started: {sweep.reason or 'no cause is known'}"]
    member_prefix = f"{gang_text.member(failure.rank, failure.host)}: " if failure.rank is not None else ""
    lines = [f"run {sweep.name} {_ended(trial)}: {member_prefix}{failure.summary}"]
    if failure.traceback:
        lines.append(failure.traceback.rstrip())
    elif failure.log_tail:
        lines += ["the last lines that it printed:", *(f"    {line}" for line in failure.log_tail[-_PRINTED_LINES:])]
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
