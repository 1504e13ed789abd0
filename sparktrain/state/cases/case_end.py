"""What comes of a case, a set of parameters with several trials, from the ends of these. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sparktrain.state.trial import Trial, TrialStatus


class CaseEnd(NamedTuple):
    """What became of a case with several trials."""

    id: int
    params: dict[str, Any]
    status: TrialStatus
    metrics: dict[str, float]
    """The mean of each metric over the trials that succeeded. Where none did and a rule has stopped one: what that was
    judged by."""
    step: int | None = None
    """Of a case that was stopped: how many trials the means are of, or the step at which its trial was judged."""


def status_of_case(trials: Sequence[TrialStatus]) -> TrialStatus:
    """The status of a case with trials of these statuses; final once all of them are.

    A case in which a rule has stopped a trial is pruned. A case without a result of each trial is lost or stopped, and
    one in which some succeeded and others failed has succeeded.
    """
    statuses = set(trials)
    if not all(status.final for status in statuses):
        return TrialStatus.QUEUED if statuses == {TrialStatus.QUEUED} else TrialStatus.RUNNING
    order = (TrialStatus.LOST, TrialStatus.STOPPED, TrialStatus.PRUNED, TrialStatus.SUCCEEDED)
    return next((status for status in order if status in statuses), TrialStatus.FAILED)


def end_of(number: int, trials: Sequence[Trial], metric: str) -> CaseEnd:
    """The end of a case of these trials; each has a result."""
    status = status_of_case([trial.status for trial in trials])
    succeeded = [trial.metrics for trial in trials if trial.status is TrialStatus.SUCCEEDED]
    step = len(succeeded) if status is TrialStatus.PRUNED else None
    if not succeeded:
        judged = [trial.pruning for trial in trials if trial.pruning is not None and trial.pruning.value is not None]
        metrics = {metric: judged[0].value} if judged and judged[0].value is not None else {}
        return CaseEnd(number, trials[0].params, status, metrics, judged[0].step if judged else None)
    return CaseEnd(number, trials[0].params, status, means(succeeded), step)


def means(metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each metric over those that have it, in the order in which they first come."""
    values: dict[str, list[float]] = {}
    for trial_metrics in metrics:
        for name, value in trial_metrics.items():
            values.setdefault(name, []).append(value)
    return {name: mean(samples) for name, samples in values.items()}


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean; NaN where a value is not finite."""
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan


def standard_error(values: Sequence[float]) -> float | None:
    """The standard error of the mean, from the sample's standard deviation; None of fewer than two values."""
    if len(values) < 2:
        return None
    middle = mean(values)
    if math.isnan(middle):
        return math.nan
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1) / len(values))
