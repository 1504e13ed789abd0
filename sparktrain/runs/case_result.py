"""The result of a case: of all trials with one set of parameters."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sparktrain.base import formatting
from sparktrain.base.ids import TrialId
from sparktrain.config.replication import Replication
from sparktrain.runs.flat_params import flat
from sparktrain.runs.result_card import card_html
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.cases.case_end import means, standard_error, status_of_case
from sparktrain.state.trial import TrialStatus


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """One set of parameters with its repeats and folds; in a sweep without these, one trial."""

    id: int
    """Its number, from 0."""
    params: dict[str, Any]
    status: TrialStatus
    """`succeeded` once all trials have a result and one has succeeded, `pruned` when a rule or racing has stopped some
    of them, `failed` when all failed; `lost` or `stopped` when one is."""
    trials: tuple[TrialId, ...]
    """The numbers of its trials."""
    n: int
    """How many of them succeeded."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The mean of each metric over those."""
    standard_errors: dict[str, float | None] = field(default_factory=dict)
    """The standard error of each mean, by the sample's standard deviation (n - 1); None of one value."""
    seconds: float = 0.0
    """How long its trials ran in all."""

    def _repr_html_(self) -> str:
        errors = {name: error for name, error in self.standard_errors.items() if error is not None}
        ran = formatting.count(len(self.trials), "trial")
        return card_html(
            f"Case {self.id}: {self.status.value}, {self.n} of {ran} succeeded",
            {
                "Means of metrics": self.metrics,
                "Standard errors": errors,
                "Parameters": flat(self.params),
                "Facts": {"trials": list(self.trials), "took": formatting.duration(self.seconds)},
            },
        )


def cases_of(trials: Sequence[TrialResult], replication: Replication) -> tuple[CaseResult, ...]:
    """The cases of trials, by number."""
    case_trials: dict[int, list[TrialResult]] = {}
    for trial in trials:
        case_trials.setdefault(replication.case(trial.id), []).append(trial)
    return tuple(_case(number, case_trials[number]) for number in sorted(case_trials))


def _case(number: int, trials: list[TrialResult]) -> CaseResult:
    measured = [trial.metrics for trial in trials if trial.status is TrialStatus.SUCCEEDED]
    metrics = means(measured)
    errors = {name: standard_error([sample[name] for sample in measured if name in sample]) for name in metrics}
    return CaseResult(
        id=number,
        params=trials[0].params,
        status=status_of_case([trial.status for trial in trials]),
        trials=tuple(trial.id for trial in trials),
        n=len(measured),
        metrics=metrics,
        standard_errors=errors,
        seconds=sum(trial.seconds for trial in trials),
    )
