"""The Pareto front of a sweep with several metrics."""

from msgspec import Struct

from sparktrain.runs.pareto import front_of
from sparktrain.views.report.views.run_inputs import RunInputs
from sparktrain.views.report.views.value_axis import ValueAxis, value_axis

MOST_POINTS = 3000


class FrontView(Struct, frozen=True):
    """The metrics that count, and the trials that no other one dominates."""

    metrics: tuple[str, ...]
    trials: tuple[int, ...]
    constraints: tuple[str, ...]
    axes: tuple[ValueAxis | None, ...]
    """The axis of each metric; None where no trial has it."""


def front_view(inputs: RunInputs) -> FrontView | None:
    """None for a sweep with one metric and no constraint."""
    outcome = inputs.outcome
    if not outcome.other_metrics and not outcome.constraints:
        return None
    objectives = outcome.objectives
    return FrontView(
        tuple(objective.metric for objective in objectives),
        tuple(trial.id for trial in front_of(outcome)) if outcome.other_metrics else (),
        tuple(map(str, outcome.constraints)),
        tuple(
            value_axis((trial.metrics.get(objective.metric) for trial in outcome.trials), objective.mode)
            for objective in objectives
        ),
    )
