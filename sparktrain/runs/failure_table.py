"""The failures of a run as a table, and why it has no best trial."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sparktrain.base import formatting
from sparktrain.base.optional_packages import require
from sparktrain.config.objectives import Constraint
from sparktrain.runs.sweep_outcome import SweepOutcome, names
from sparktrain.runs.trial_result import FAILED_OR_LOST, TrialResult
from sparktrain.state.outcome import Failure
from sparktrain.state.trial import TrialStatus

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("trial", "status", "kind", "error", "host", "rank", "loss", "generations", "log")


def log_of(trial: TrialResult, failure: Failure) -> str | None:
    """The path of the log of the member that failed; of the chief's log when that member is unknown."""
    return next((member.log for member in trial.members if member.rank == failure.rank), trial.log)


def failure_frame(trials: Sequence[TrialResult]) -> "pd.DataFrame":
    """`SweepResult.failures`."""
    require("pandas", "failures")
    import pandas as pd

    rows = [
        {
            "trial": trial.id,
            "status": trial.status.value,
            "kind": failure.kind.value,
            "error": failure.summary,
            "host": failure.host or trial.host,
            "rank": failure.rank,
            "loss": failure.loss and failure.loss.value,
            "generations": trial.generations,
            "log": log_of(trial, failure),
        }
        for trial in trials
        if trial.status in FAILED_OR_LOST and (failure := trial.error) is not None
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def no_best(result: SweepOutcome) -> str:
    """Why there is no best trial, and what to do."""
    succeeded = [trial for trial in result.trials if trial.status is TrialStatus.SUCCEEDED]
    if result.metric is None:
        metrics_text = ", ".join(names(trial.metrics for trial in succeeded))
        advice = f"pass metric=, one of {metrics_text}" if metrics_text else "pass metric=, and return that metric"
        return f"run {result.name} has no metric to compare its trials by: {advice}; result.trials has all trials"
    if succeeded and result.replication.size > 1:
        counts = Counter(case.status.value for case in result.cases)
        shown = ", ".join(f"{count} {status}" for status, count in counts.items())
        return (
            f"no set of parameters of run {result.name} has a result of each of its {result.replication.size} "
            f"trials and a finite mean of {result.metric!r} ({shown}): resume the run, or see result.cases"
        )
    if succeeded and (nearest := _nearest(result)):
        return f"no trial of run {result.name} keeps its constraints: {nearest}; result.trials has all trials"
    if succeeded:
        count = formatting.count(len(succeeded), "trial")
        return (
            f"no trial of run {result.name} has a finite {result.metric!r}: {count} succeeded, see result.to_pandas()"
        )
    counts = Counter(trial.status.value for trial in result.trials)
    shown = ", ".join(f"{count} {status}" for status, count in counts.items()) or "there are none"
    return f"no trial of run {result.name} succeeded ({shown}){_commonest(result)}"


def _nearest(result: SweepOutcome) -> str:
    """How near the nearest trial comes to the constraints; empty where one keeps them, or none has the metrics."""
    succeeded = [trial for trial in result.trials if trial.status is TrialStatus.SUCCEEDED]
    beyond = {trial.id: _beyond(trial.metrics, result.constraints) for trial in succeeded}
    measured = [trial for trial in succeeded if math.isfinite(beyond[trial.id])]
    if not measured or not all(beyond.values()):
        return ""
    top = min(measured, key=lambda candidate: (beyond[candidate.id], candidate.id))
    broken = next(bound for bound in result.constraints if not bound.holds(top.metrics))
    return (
        f"trial {top.id} comes nearest, with {broken.metric} {top.metrics[broken.metric]:.6g} where {broken} is wanted"
    )


def _beyond(metrics: Mapping[str, float], bounds: Sequence[Constraint]) -> float:
    """The sum of what the metrics are beyond the bounds; infinite where one is missing."""
    over = [bound.excess(metrics) for bound in bounds]
    return math.inf if any(map(math.isnan, over)) else math.fsum(max(0.0, excess) for excess in over)


def _commonest(result: SweepOutcome) -> str:
    """The failure that most trials have, with the log of the first of them."""
    failed = [trial for trial in result.trials if trial.error is not None]
    if not failed:
        return "" if result.directory is None else f"; the run directory is {result.directory}"
    kinds = Counter((trial.error.kind, trial.error.summary) for trial in failed if trial.error is not None)
    (kind, summary), count = kinds.most_common(1)[0]
    first = next(trial for trial in failed if trial.error is not None and trial.error.summary == summary)
    often = f"{count} of {len(failed)} failures are" if len(failed) > 1 else "its failure is"
    assert first.error is not None
    where = log_of(first, first.error)
    log = f"; log of trial {first.id}: {where}" if where else ""
    return f"; {often} {kind.value}: {summary}{log}; see result.failures()"
