"""Which parameters matter: PED-ANOVA of Optuna, over the trials with a result."""

import logging
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sparktrain.report.views.parameter_axes import Axis, as_text
from sparktrain.report.views.trial_rows import TrialRow

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

LEAST_TRIALS = 8
MOST_TRIALS = 4000
"""Of more trials, an even sample."""


class Importance(Struct, frozen=True):
    """The share of one parameter."""

    name: str
    share: float
    """From 0 to 1; all shares together are 1."""


class ImportanceView(Struct, frozen=True, omit_defaults=True):
    """The parameters, the most important one first; none with the reason why."""

    shares: tuple[Importance, ...] = ()
    reason: str = ""
    """Why there is no importance, with the next step; empty where there is."""
    trials: int = 0
    """Trials that it was computed from."""


def importance_view(axes: Sequence[Axis], rows: Sequence[TrialRow], mode: str) -> ImportanceView:
    """The importance of the parameters that all `rows` have, which are succeeded trials with a finite value."""
    if len(rows) < LEAST_TRIALS:
        return ImportanceView(
            reason=f"importance needs at least {LEAST_TRIALS} trials with a result: there are {len(rows)}"
        )
    shared = [axis for axis in axes if all(axis.name in row.params for row in rows)]
    if not shared:
        return ImportanceView(reason="no parameter differs between the trials with a result")
    if len({row.value for row in rows}) < 2:
        return ImportanceView(reason="all trials have the same value of the metric")
    if find_spec("optuna") is None:
        return ImportanceView(
            reason="importance needs optuna, which is not installed: pip install 'sparktrain[search]'"
        )
    stride = max(1.0, len(rows) / MOST_TRIALS)
    sample = [rows[int(place * stride)] for place in range(min(len(rows), MOST_TRIALS))]
    return _computed(shared, sample, mode)


def _computed(axes: Sequence[Axis], rows: Sequence[TrialRow], mode: str) -> ImportanceView:
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(logging.WARNING)
    try:
        study = optuna.create_study(
            direction="maximize" if mode == "max" else "minimize", sampler=optuna.samplers.RandomSampler(seed=0)
        )
        distributions = {axis.name: _distribution(axis) for axis in axes}
        study.add_trials(
            [
                optuna.trial.create_trial(
                    value=row.value,
                    params={axis.name: _value(axis, row.params[axis.name]) for axis in axes},
                    distributions=distributions,
                )
                for row in rows
            ]
        )
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
    except (ValueError, RuntimeError, ZeroDivisionError, OverflowError) as error:
        return ImportanceView(reason=f"optuna could not compute it: {error}")
    finally:
        optuna.logging.set_verbosity(before)
    found = (Importance(name, round(float(share), 4)) for name, share in shares.items())
    return ImportanceView(tuple(sorted(found, key=lambda each: -each.share)), trials=len(rows))


def _distribution(axis: Axis) -> "BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if axis.kind == "category":
        return CategoricalDistribution(axis.values)
    assert axis.low is not None
    assert axis.high is not None
    return FloatDistribution(axis.low, axis.high, log=axis.log)


def _value(axis: Axis, value: Any) -> Any:
    return as_text(value) if axis.kind == "category" else float(value)
