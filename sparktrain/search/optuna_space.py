"""Values of a sampled space as parameters of Optuna, and back, so that a restored trial is equal to the first.

Lists and choices are indices, steps are counted, and a normal distribution is a uniform share of it: samplers see
numbers and indices alone.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sparktrain.config.distribution import TAIL, Distribution
from sparktrain.search.sampled_space import Leaf, SampledSpace

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial


def distribution_of(leaf: Leaf) -> "BaseDistribution":
    """The distribution of Optuna that stands for a leaf."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not isinstance(leaf, Distribution):
        return CategoricalDistribution(range(len(leaf)))
    match leaf.kind:
        case "choice":
            return CategoricalDistribution(range(len(leaf.arguments)))
        case "quniform":
            return IntDistribution(0, leaf.steps)
        case "randint" | "lograndint":
            low, high = leaf.arguments
            return IntDistribution(low, high, log=leaf.kind == "lograndint")
        case "normal":
            return FloatDistribution(TAIL, 1 - TAIL)
    low, high = leaf.arguments
    return FloatDistribution(low, high, log=leaf.kind == "loguniform")


def distributions_of(space: SampledSpace) -> dict[str, "BaseDistribution"]:
    """The distribution of each leaf by its path, in their order."""
    return {path: distribution_of(leaf) for path, leaf in space.leaves.items()}


def suggested(trial: "Trial", path: str, distribution: "BaseDistribution") -> Any:
    """What the sampler of the trial's study chooses for a parameter."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    match distribution:
        case CategoricalDistribution(choices=choices):
            return trial.suggest_categorical(path, choices)
        case FloatDistribution(low=low, high=high, log=log):
            return trial.suggest_float(path, low, high, log=log)
        case IntDistribution(low=low, high=high, log=log):
            return trial.suggest_int(path, low, high, log=log)
    raise TypeError(f"no such distribution: {distribution}")


def value_of(leaf: Leaf, param: Any) -> Any:
    """The value that a parameter of Optuna stands for."""
    if not isinstance(leaf, Distribution):
        return leaf[param]
    match leaf.kind:
        case "choice":
            return leaf.arguments[param]
        case "quniform":
            return leaf.at_step(param)
        case "normal":
            return leaf.quantile(param)
    return param


def params_of(space: SampledSpace, case: Mapping[str, Any]) -> dict[str, Any] | None:
    """The parameters that stand for a case; None when it is no case of this space. A normal value may lose a bit."""
    chosen = space.chosen(case)
    if chosen is None:
        return None
    params = {path: param_of(space.leaves[path], value) for path, value in chosen.items()}
    return None if any(param is None for param in params.values()) else params


def param_of(leaf: Leaf, value: Any) -> Any:
    """The parameter that stands for a value; None when the leaf does not have it."""
    values = leaf if not isinstance(leaf, Distribution) else leaf.arguments if leaf.kind == "choice" else None
    if values is not None:
        return next((index for index, choice in enumerate(values) if choice == value and _is_same(choice, value)), None)
    assert isinstance(leaf, Distribution)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if leaf.kind == "normal":
        return leaf.share(value)
    low, high = leaf.arguments[:2]
    if leaf.kind == "quniform":
        index = round((value - low) / leaf.arguments[2])
        return index if 0 <= index <= leaf.steps and leaf.at_step(index) == value else None
    is_integer = "int" in leaf.kind
    return value if low <= value <= high and (not is_integer or isinstance(value, int)) else None


def _is_same(first: Any, second: Any) -> bool:
    """Whether two values that are equal are the same in JSON too: 1, 1.0 and True are three."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
