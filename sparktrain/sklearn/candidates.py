"""The candidates of a search as a space of plain values, and back.

A sweep sends and stores parameters as JSON, and those of scikit-learn may be any objects: estimators, tuples,
functions. Such a value of a list gets a text as its code, which people read in results and reports; what it stands for
travels with the function. Distributions propose plain values, which need no code.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparktrain.config.distribution import Distribution, choice, loguniform, randint, uniform
from sparktrain.config.param_values import described, did_you_mean, shown
from sparktrain.errors import SpecError
from sparktrain.search.sampled_space import as_space
from sparktrain.search.space import Space, When, cases, grid

Code = tuple[str, Any]
"""The type of a plain value, and the value: 1 and True are different values, and equal keys."""

MOST_EXAMPLES = 1000
"""So many candidates with different estimators are tried on the estimator before anything starts."""
_LABEL = 60
"""Characters of a code."""
_PLAIN = (type(None), bool, str)


@dataclass(frozen=True)
class Codes:
    """What the codes of each parameter stand for; a parameter of plain values has none."""

    objects: Mapping[str, Mapping[Code, Any]] = field(default_factory=dict)

    def params(self, coded: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of a candidate as the user wrote them."""
        return {name: self._value(name, code) for name, code in coded.items()}

    def _value(self, name: str, code: Any) -> Any:
        objects = self.objects.get(name)
        if not objects or isinstance(code, list | dict):
            return code
        return objects.get((type(code).__name__, code), code)


@dataclass(frozen=True)
class Candidates:
    """What a search tries."""

    space: Space
    codes: Codes = field(default_factory=Codes)


def candidates_of(space: object) -> Candidates:
    """The candidates of a dict of lists or distributions, a list of dicts of lists, or a space. Raises SpecError.

    Their order is that of `sklearn.model_selection.ParameterGrid`: names sorted, the last one varying fastest.
    """
    if isinstance(space, Space):
        return Candidates(space)
    if isinstance(space, Mapping):
        return _of_dict(space)
    if isinstance(space, Sequence) and not isinstance(space, str | bytes):
        return _of_grids(space)
    raise SpecError(
        f"the space is {described(space)}; pass a dict of lists such as {{'C': [0.1, 1, 10]}} or of distributions, a "
        "list of such dicts of lists, or what sparktrain.space(), grid(), zipped() or cases() return"
    )


def check_names(estimator: Any, candidates: Candidates) -> None:
    """Check that the estimator has all parameters of the space. Raises SpecError with the nearest name.

    Sets parameters of clones, which runs code of the estimator.
    """
    params = estimator.get_params(deep=True)
    for name in candidates.space.names:
        if name not in params and not _in_searched_estimator(name, candidates):
            raise SpecError(
                f"the space has {name!r}, and {type(estimator).__name__} has no such parameter"
                f"{did_you_mean(name, params) or ';'} its parameters are {', '.join(sorted(params))}"
            )
    _try_on(estimator, candidates)


def _try_on(estimator: Any, candidates: Candidates) -> None:
    """Set the parameters of each combination of estimators on a clone: not all have the parameters of all. SpecError"""
    from sklearn.base import clone

    tried: set[tuple[Any, ...]] = set()
    for coded in itertools.islice(candidates.space.examples(), MOST_EXAMPLES):
        key = tuple((name, shown(coded[name]) if name in candidates.codes.objects else "") for name in sorted(coded))
        if key in tried:
            continue
        tried.add(key)
        params = candidates.codes.params(coded)
        try:
            clone(estimator).set_params(**clone(params, safe=False))
        except (ValueError, TypeError, AttributeError) as error:
            raise SpecError(
                f"the candidate {shown(params, 200)} cannot be set on {type(estimator).__name__}: "
                f"{' '.join(str(error).split())}; give each estimator a grid of its own, as a list of dicts"
            ) from error


def _in_searched_estimator(name: str, candidates: Candidates) -> bool:
    """Whether an estimator among the values of another parameter has this one: `clf__C`, where `clf` is searched."""
    for owner, objects in candidates.codes.objects.items():
        inner = name.removeprefix(f"{owner}__")
        if inner != name and any(inner in _params_of(value) for value in objects.values()):
            return True
    return False


def _params_of(value: Any) -> Iterable[str]:
    return value.get_params(deep=True) if hasattr(value, "get_params") and not isinstance(value, type) else ()


def _of_dict(space: Mapping[Any, object]) -> Candidates:
    values = {name: _distribution(f"the space: {name!r}", value) for name, value in space.items()}
    sampled = any(isinstance(value, Distribution) for value in values.values())
    conditional = any(isinstance(value, When) for value in values.values())
    if not sampled and not conditional:
        return _of_grids([values])
    objects: dict[str, Mapping[Code, Any]] = {}
    plain: dict[Any, Any] = {}
    for name, value in values.items():
        if isinstance(value, Distribution | When):
            plain[name] = value
            continue
        codes, objects[name] = _coded(_listed(f"the space: {name!r}", value), {})
        plain[name] = choice(codes) if sampled else codes
    return Candidates(as_space(plain), _codes(objects))


def _of_grids(grids: Sequence[object]) -> Candidates:
    """The candidates of one grid, or of several, one after the other."""
    if not grids:
        raise SpecError("the space is an empty list, at least one grid is needed: write {'C': [0.1, 1, 10]}")
    objects: dict[str, dict[Code, Any]] = {}
    axes: list[dict[str, list[Any]]] = []
    for index, values in enumerate(grids):
        subject = "the space" if len(grids) == 1 else f"the space[{index}]"
        if not isinstance(values, Mapping):
            raise SpecError(f"{subject} is {described(values)}, a dict of lists is expected: write {{'C': [0.1, 1]}}")
        axes.append({})
        for name in sorted(values, key=str):
            column = _listed(f"{subject}: {name!r}", values[name])
            axes[-1][name], objects[name] = _coded(column, objects.get(name, {}))
    if len(axes) == 1:
        return Candidates(grid(axes[0]), _codes(objects))
    rows = [dict(zip(axis, row, strict=True)) for axis in axes for row in itertools.product(*axis.values())]
    return Candidates(cases(rows), _codes(objects))


def _codes(objects: Mapping[str, Mapping[Code, Any]]) -> Codes:
    return Codes({name: values for name, values in objects.items() if values})


def _listed(subject: str, values: object) -> list[Any]:
    """The values of one parameter. Raises SpecError."""
    if isinstance(values, np.ndarray | Sequence) and not isinstance(values, str | bytes):
        if getattr(values, "ndim", 1) != 1:
            raise SpecError(f"{subject} is an array of shape {values.shape}: pass a list of values")  # type: ignore[union-attr] # an array
        if len(values):
            return list(values)
        raise SpecError(f"{subject} is an empty list, at least one value is needed; add a value or remove the name")
    raise SpecError(
        f"{subject} is {described(values)}, a list of values or a distribution is expected; write [{shown(values)}]"
    )


def _coded(values: Sequence[Any], before: Mapping[Code, Any]) -> tuple[list[Any], dict[Code, Any]]:
    """A plain value for each of `values`, and what those stand for that are not the value itself, with `before`."""
    objects = dict(before)
    plain = {(type(value).__name__, value) for value in values if _is_plain(value)}
    codes: list[Any] = []
    for value in values:
        if _is_plain(value):
            codes.append(value)
            continue
        code = _code(value, objects, plain)
        objects[type(code).__name__, code] = value
        codes.append(code)
    return codes, objects


def _code(value: Any, objects: Mapping[Code, Any], plain: set[Code]) -> Any:
    """The number of a NumPy scalar, or a text for an object, which no other value has; equal ones share theirs."""
    if isinstance(value, np.generic) and _is_plain(number := value.item()):
        key = (type(number).__name__, number)
        if key not in plain and type(objects.get(key, value)) is type(value):
            return number
    return _label(value, objects, plain)


def _label(value: Any, objects: Mapping[Code, Any], plain: set[Code]) -> str:
    text = shown(value, _LABEL)
    for number in itertools.count(1):
        label = text if number == 1 else f"{text} #{number}"
        if ("str", label) not in plain and objects.get(("str", label), value) is value:
            return label
    raise AssertionError("numbers do not end")


def _is_plain(value: Any) -> bool:
    """Whether a sweep sends the value as it is."""
    kind = type(value)
    if kind is int:
        return bool(-(2**63) <= value < 2**63)
    return kind in _PLAIN or (kind is float and bool(math.isfinite(value)))


def _distribution(subject: str, value: Any) -> Any:
    """A frozen distribution of SciPy as ours; every other value as it is. Raises SpecError for one that is not ours."""
    if not (hasattr(value, "rvs") and hasattr(value, "support")):
        return value
    name = getattr(getattr(value, "dist", None), "name", "")
    shifted = bool(value.kwds) or len(value.args) > 2
    low, high = value.support()
    if name == "uniform":
        return uniform(float(low), float(high))
    if name in ("loguniform", "reciprocal") and not shifted:
        return loguniform(float(low), float(high))
    if name == "randint" and not shifted:
        return randint(int(low), int(high))
    raise SpecError(
        f"{subject} is the distribution {name or shown(value)} of SciPy, and uniform, loguniform and randint with two "
        "arguments can be searched: use sparktrain.uniform, loguniform, quniform, randint, lograndint, normal or choice"
    )
