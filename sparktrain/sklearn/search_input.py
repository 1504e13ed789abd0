"""Checks what a search is called with, before anything starts: estimator, rows, splits and scorers."""

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import sklearn
from msgspec import structs
from sklearn.base import clone, is_classifier
from sklearn.metrics import check_scoring, get_scorer_names
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, check_cv
from sklearn.utils import indexable

from sparktrain.base import formatting
from sparktrain.base.optional_packages import require
from sparktrain.config.data_sources import is_frame
from sparktrain.config.param_values import described, did_you_mean, shown
from sparktrain.config.replication import MOST_REPLICAS
from sparktrain.config.stoppers import ASHA, PBT, AnyStopRule, Hyperband, Wilcoxon
from sparktrain.errors import SpecError
from sparktrain.sklearn.candidates import Codes
from sparktrain.sklearn.fold_fit import RAISE, SINGLE, SearchData, SearchTask, routed_params
from sparktrain.sklearn.fold_growth import N_SAMPLES, FitGrowth, FitRows
from sparktrain.usercode.preload import chosen
from sparktrain.usercode.source_imports import Imports

Refit = bool | str | Callable[[Mapping[str, Any]], int]


@dataclass(frozen=True, kw_only=True)
class ScoreChoice:
    """What a search measures."""

    names: tuple[str, ...]
    """The names of the scores."""
    several: bool
    metric: str | None
    """The metric of the sweep; None where `refit` names no score of several."""


def check_estimator(estimator: Any) -> None:
    """Check that an object is an estimator that can be cloned. Raises SpecError."""
    if isinstance(estimator, type):
        raise SpecError(f"estimator is the class {estimator.__name__}: pass an object of it, {estimator.__name__}()")
    if not callable(getattr(estimator, "fit", None)) or not callable(getattr(estimator, "get_params", None)):
        raise SpecError(
            f"estimator is {described(estimator)}, an estimator of scikit-learn is expected: an object with fit and "
            "get_params, such as Pipeline([...])"
        )
    try:
        clone(estimator)
    except Exception as error:  # its constructor is the user's
        raise SpecError(
            f"estimator {shown(estimator)} cannot be cloned, and each candidate is a clone: "
            f"{' '.join(str(error).split())}; its __init__ must store each argument as it is, under its own name"
        ) from error


def check_callbacks(estimator: Any, codes: Codes) -> None:
    """Raises SpecError for callbacks of scikit-learn, on the estimator or on one among the values of the space."""
    for part in parts_of(estimator, codes):
        callbacks = [] if isinstance(part, type) else getattr(part, "_skl_callbacks", None)
        if callbacks:
            names = ", ".join(type(callback).__name__ for callback in callbacks)
            raise SpecError(
                f"{type(part).__name__} has callbacks of scikit-learn ({names}), and each fit of a search runs in a "
                "process of an executor, which callbacks of this process do not reach: remove them by set_callbacks() "
                "without arguments; return_train_score=True and the logs of search.sweep show what fits do"
            )


def data_of(
    X: Any, y: Any, groups: Any, fit_params: Mapping[str, Any] | None, cv: Any, estimator: Any, scoring: Any = None
) -> SearchData:
    """The rows and their splits. Collects Spark DataFrames, and splits, which blocks. Raises SpecError."""
    y = _rows_of("y", y)
    groups = _rows_of("groups", groups)
    columns = {name: value for name, value in (("y", y), ("groups", groups)) if isinstance(value, str)}
    _check_columns(X, columns)
    if is_frame(X):
        require("pandas", "search_cv() with a DataFrame of Spark")
        X = X.toArrow().to_pandas()
    if columns:
        X, parts = _taken(X, columns)
        y = parts.get("y", y)
        groups = parts.get("groups", groups)
    _check_lengths({"X": X, "y": y, "groups": groups})
    for name, value in (fit_params or {}).items():
        if not isinstance(name, str):
            raise SpecError(f"fit_params has the name {described(name)}: write the names of arguments of fit() as text")
        if is_frame(value):
            raise SpecError(f"fit_params[{name!r}] is a DataFrame of Spark: pass an array of its values")
    X, y = indexable(_contiguous(X), _contiguous(y))
    metadata = {} if groups is None else {"groups": groups}
    params = dict(fit_params or {})
    if sklearn.get_config()["enable_metadata_routing"]:
        params, metadata = _routed(estimator, scoring, cv, params | metadata)
    splits, order = _splits(cv, X, y, metadata, estimator)
    return SearchData(X=X, y=y, splits=splits, order=order, fit_params=params)


def _routed(estimator: Any, scoring: Any, cv: Any, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """By metadata routing, what of `params` fits and scorers request, and what the splitter gets. Raises SpecError."""
    try:
        routed: Any = routed_params(estimator, scoring, "fit", params, cv)
    except (ValueError, TypeError) as error:
        raise SpecError(
            f"fit_params and groups have {', '.join(params)}, and metadata routing refuses them: "
            f"{' '.join(str(error).split())}"
        ) from error
    requests = GridSearchCV(estimator, {}, scoring=scoring, refit=False).get_metadata_routing()
    consumed = requests.consumes("fit", params)
    return {name: value for name, value in params.items() if name in consumed}, routed.splitter.split


def scoring_of(estimator: Any, scoring: Any, refit: object) -> ScoreChoice:
    """What is measured, and what decides. Raises SpecError."""
    try:
        scorer = check_scoring(estimator, scoring=scoring)
    except (ValueError, TypeError, KeyError) as error:
        known = get_scorer_names()
        requested = (
            [scoring] if isinstance(scoring, str) else list(scoring) if isinstance(scoring, list | tuple) else []
        )
        unknown = next((name for name in requested if isinstance(name, str) and name not in known), None)
        if unknown is not None:
            raise SpecError(
                f"scoring ({shown(unknown)}) is no scorer of scikit-learn{did_you_mean(unknown, known)}; "
                "sklearn.metrics.get_scorer_names() lists them, and make_scorer() makes one of a function"
            ) from None
        raise SpecError(f"scoring is {described(scoring)}: {' '.join(str(error).split())}") from error
    several = isinstance(scoring, list | tuple | set | dict)
    names = tuple(scorer._scorers) if several else (SINGLE,)
    return ScoreChoice(names=names, several=several, metric=_metric(names, several, callable(scoring), refit))


def check_scores(error_score: object, return_train_score: object) -> None:
    """Raises SpecError for what is no score, and no switch."""
    if not isinstance(return_train_score, bool):
        raise SpecError(f"return_train_score is {described(return_train_score)}: pass True or False")
    if error_score == RAISE or (isinstance(error_score, int | float) and not isinstance(error_score, bool)):
        return
    raise SpecError(f"error_score is {described(error_score)}: pass 'raise', or a number such as float('nan')")


def _metric(names: tuple[str, ...], several: bool, is_callable: bool, refit: object) -> str | None:
    if not isinstance(refit, bool | str) and not callable(refit):
        raise SpecError(f"refit is {described(refit)}: pass True, False, the name of a score, or a function")
    if isinstance(refit, str) and (several or is_callable):
        if several and refit not in names:
            raise SpecError(
                f"refit ({refit!r}) must be one of the scores {', '.join(names)}{did_you_mean(refit, names)}"
            )
        return f"test_{refit}"
    if several and refit is True:
        raise SpecError(f"refit is True with the scores {', '.join(names)}: name the one that decides, or pass False")
    return None if several else f"test_{SINGLE}"


def _rows_of(name: str, value: Any) -> Any:
    if is_frame(value):
        raise SpecError(
            f"{name} is a DataFrame of Spark, and two of them have no common order of rows: pass the name of its "
            f"column in X, such as {name}='label'"
        )
    return value


def _check_columns(X: Any, columns: Mapping[str, str]) -> None:
    """Raise SpecError for names that X lacks."""
    names = getattr(X, "columns", None)
    for part, column in columns.items():
        if names is None:
            raise SpecError(
                f"{part} is the name {column!r}, and X is {type(X).__name__}, which has no names: pass values"
            )
        if column not in names:
            raise SpecError(f"{part} ({column!r}) is no column of X{did_you_mean(column, map(str, names))}")


def _taken(X: Any, columns: Mapping[str, str]) -> tuple[Any, dict[str, Any]]:
    """X without the columns, and these."""
    return X.drop(columns=list(dict.fromkeys(columns.values()))), {part: X[column] for part, column in columns.items()}


def _check_lengths(parts: Mapping[str, Any]) -> None:
    lengths: dict[str, int] = {}
    for name, value in parts.items():
        if value is None and name != "X":
            continue
        shape = getattr(value, "shape", None)
        if shape is None and (not isinstance(value, Sequence) or isinstance(value, str | bytes)):
            raise SpecError(
                f"{name} is {described(value)}: pass an array, a sparse matrix, a DataFrame or a list of rows"
            )
        if shape is not None and not len(shape):
            raise SpecError(f"{name} is {described(value)}, a single number: pass an array with an entry for each row")
        lengths[name] = int(shape[0]) if shape is not None else len(value)
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {formatting.count(length, 'row')}" for name, length in lengths.items())
        raise SpecError(f"{listed}: they must be equally long, row by row; check filters and joins")
    if not lengths["X"]:
        raise SpecError("X has no rows: check filters and joins")


def _contiguous(rows: Any) -> Any:
    """An array without gaps in its memory, to map it; its order of axes stays, and so do all other types."""
    if isinstance(rows, np.memmap):
        rows = rows.view(np.ndarray)
    if isinstance(rows, np.ndarray) and not (rows.flags.c_contiguous or rows.flags.f_contiguous):
        return np.array(rows, order="K")
    return rows


def _splits(cv: Any, X: Any, y: Any, metadata: dict[str, Any], estimator: Any) -> tuple[list[tuple[Any, Any]], FitRows]:
    """The rows of each fold: those to fit, and those to score; which rows are some of them. Raises SpecError."""
    try:
        splitter = check_cv(cv, y, classifier=is_classifier(estimator))
        splits = [(np.asarray(train), np.asarray(test)) for train, test in splitter.split(X, y, **metadata)]
        repeated = list(splitter.split(X, y, **metadata))
    except Exception as error:  # the splitter may be the user's
        raise SpecError(f"cv ({shown(cv)}) cannot split the rows: {' '.join(str(error).split())}") from error
    if not splits:
        raise SpecError(f"cv ({shown(cv)}) has no splits, and a search needs at least one: pass a number such as 5")
    if len(splits) > MOST_REPLICAS:
        raise SpecError(
            f"cv ({shown(cv)}) has {len(splits):,} splits, and must have at most {MOST_REPLICAS}: use fewer"
        )
    rows = X.shape[0] if hasattr(X, "shape") else len(X)
    for fold, parts in enumerate(splits):
        for name, part in zip(("train", "test"), parts, strict=True):
            _check_part(f"the {name} rows of split {fold} of cv", part, rows)
    if not all(map(_are_equal, splits, repeated)):
        warnings.warn(
            f"cv ({shown(cv)}) draws other splits each time, so that the same call cannot resume this search: pass "
            "random_state=0 to it",
            UserWarning,
            stacklevel=5,
        )
    return splits, _order(splitter)


def _order(splitter: Any) -> FitRows:
    if isinstance(splitter, TimeSeriesSplit):
        return FitRows.NEWEST
    is_stratified = any("Stratified" in kind.__name__ for kind in type(splitter).__mro__)
    return FitRows.STRATIFIED if is_stratified else FitRows.RANDOM


def _are_equal(one: Sequence[Any], two: Sequence[Any]) -> bool:
    return all(np.array_equal(part, other_part) for part, other_part in zip(one, two, strict=True))


def _check_part(subject: str, part: Any, rows: int) -> None:
    if not (part.any() if part.dtype.kind == "b" else part.size):
        raise SpecError(f"{subject} are empty: use fewer splits, or check the groups")
    if part.ndim != 1 or part.dtype.kind not in "iub":
        raise SpecError(f"{subject} are {shown(part)}: a split is a pair of arrays with numbers of rows")
    if part.dtype.kind != "b" and (part.max() >= rows or part.min() < -rows):
        worst = part.max() if part.max() >= rows else part.min()
        raise SpecError(f"{subject} have the number {worst}, and X has the rows 0 to {rows - 1}: correct the split")


_MEMBERS_OWN = "sparktrain.sklearn.fold_rehearsal"
"""What prepares a zygote for fits."""
_OF_EACH_FIT = ("numpy", "pyarrow", "sklearn.model_selection")
_DEPTH = 4


def modules_of(task: SearchTask, rows: object, variables: Collection[str] = ()) -> tuple[str, ...]:
    """The modules that are safe to fork after, of the estimator, of the values of the space and of the rows.

    `variables` are those that trials get: a library that reads one of them on import is left to the trials.
    """
    modules = {kind.__module__ for kind in {type(rows), *map(type, parts_of(task.estimator, task.codes))}}
    safe = chosen(Imports(modules={*modules, *_OF_EACH_FIT}), env=variables).modules
    return (*safe, _MEMBERS_OWN) if set(_OF_EACH_FIT) <= set(safe) else safe


def parts_of(estimator: Any, codes: Codes) -> list[Any]:
    """The estimator and the values of the space, and the estimators and other objects that these are made of."""
    values = [estimator, *(value for objects in codes.objects.values() for value in objects.values())]
    return [part for value in values for part in _parts(value, _DEPTH)]


def _parts(value: Any, depth: int) -> Iterator[Any]:
    """The value, and the estimators that it is made of."""
    yield value
    if isinstance(value, type) or not depth:
        return
    inner: Iterable[Any] = ()
    if callable(getattr(value, "get_params", None)):
        inner = value.get_params(deep=False).values()
    elif isinstance(value, list | tuple):
        inner = value
    for part in inner:
        yield from _parts(part, depth - 1)


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
