"""Checks the resource of a search and the rules that judge its fits, before anything starts."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from msgspec import structs
from sklearn.base import clone

from sparktrain.config.param_values import described, did_you_mean
from sparktrain.config.stoppers import ASHA, PBT, AnyStopRule, Hyperband, Wilcoxon
from sparktrain.errors import SpecError
from sparktrain.sklearn.fold_fit import SearchData
from sparktrain.sklearn.fold_growth import N_SAMPLES, FitGrowth

_Halving = ASHA | Hyperband
"""Rules with rungs."""


@dataclass(frozen=True, kw_only=True)
class GrowthChoice:
    """How fits grow, the rules that judge them, and the estimator that has all of the resource."""

    growth: FitGrowth | None
    rules: tuple[AnyStopRule, ...]
    estimator: Any


def growth_of(
    resource: object,
    rules: Sequence[AnyStopRule],
    estimator: Any,
    searched: Collection[str],
    data: SearchData,
) -> GrowthChoice:
    """The choice for a search of the parameters `searched`. Raises SpecError."""
    if resource is None:
        _check_fold_rules(rules)
        return GrowthChoice(growth=None, rules=tuple(rules), estimator=estimator)
    _check_growth_rules(resource, rules)
    most = next((rule.most for rule in rules if isinstance(rule, _Halving) and rule.most is not None), None)
    if resource == N_SAMPLES:
        total = _rows(data, most)
    else:
        amount = _amount(resource, estimator, searched)
        total = amount if most is None else most
        estimator = clone(estimator).set_params(**{str(resource): total})
    if total < 2:
        raise SpecError(f"resource {resource!r} is {total} in all: 2 is the least, so that fits can start with less")
    judges = [_with_most(rule, total) for rule in rules]
    halving = [rule for rule in judges if isinstance(rule, _Halving)] or [ASHA(most=total)]
    rungs = {rung for rule in halving for rung in rule.rungs(total)}
    return GrowthChoice(
        growth=FitGrowth(resource=str(resource), amounts=(*sorted(rungs), total)),
        rules=tuple(judges),
        estimator=estimator,
    )


def _check_fold_rules(rules: Sequence[AnyStopRule]) -> None:
    if judging := [rule for rule in rules if not isinstance(rule, Wilcoxon)]:
        raise SpecError(
            f"stopper {judging[0]} judges what trials report while they train, and a fit reports nothing: pass "
            f"resource={N_SAMPLES!r} or the name of a parameter such as 'n_estimators', so that fits start with little "
            "of it; or racing=True or stopper='wilcoxon', which compare folds"
        )


def _check_growth_rules(resource: object, rules: Sequence[AnyStopRule]) -> None:
    if not isinstance(resource, str):
        raise SpecError(f"resource is {described(resource)}: pass {N_SAMPLES!r}, or the name of a parameter")
    if not rules:
        raise SpecError(f"resource is {resource!r}, and no rule judges fits with little of it: pass stopper='asha'")
    if unable := [rule for rule in rules if isinstance(rule, PBT) or (isinstance(rule, ASHA) and rule.promote)]:
        raise SpecError(f"stopper {unable[0]} continues from checkpoints, and fits save none: pass stopper='asha'")


def _with_most(rule: AnyStopRule, total: int) -> AnyStopRule:
    """The rule for fits with amounts up to `total`. Raises SpecError."""
    return structs.replace(rule, steps_from=0, **({"most": total} if isinstance(rule, _Halving) else {}))


def _rows(data: SearchData, most: int | None) -> int:
    """The rows of the first fold, which rules judge. Raises SpecError."""
    train, _ = data.splits[0]
    total = int(train.sum()) if train.dtype.kind == "b" else len(train)
    if most not in (None, total):
        raise SpecError(
            f"stopper: most ({most}) must be left out with resource={N_SAMPLES!r}: a whole fit has all {total} rows of "
            "its fold"
        )
    return total


def _amount(resource: Any, estimator: Any, searched: Collection[str]) -> int:
    """The value of the parameter `resource`. Raises SpecError."""
    params = estimator.get_params(deep=True)
    if resource not in params:
        names = [N_SAMPLES, *params]
        raise SpecError(
            f"resource ({resource!r}) must be {N_SAMPLES!r} or a parameter of {type(estimator).__name__}"
            f"{did_you_mean(resource, names) or '; its parameters are ' + ', '.join(sorted(params))}"
        )
    if resource in searched:
        raise SpecError(f"resource ({resource!r}) is in the space too, and the search sets it itself: remove it there")
    amount = params[resource]
    if isinstance(amount, bool) or not isinstance(amount, Integral):
        raise SpecError(
            f"resource ({resource!r}) is {described(amount)} in the estimator, and must be a number to grow to: set it"
        )
    return int(amount)
