"""What Optuna chooses becomes a value, goes through JSON, and comes back as the same parameter."""

import json
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as some

from sparktrain.config.distribution import (
    Distribution,
    choice,
    lograndint,
    loguniform,
    normal,
    quniform,
    randint,
    uniform,
)
from sparktrain.search.optuna_space import distributions_of, params_of, suggested, value_of
from sparktrain.search.sampled_space import SampledSpace, space
from tests.support.examples import examples

POSITIVE = some.floats(1e-9, 1e9)
PLAIN = some.recursive(
    some.none() | some.booleans() | some.integers(-3, 3) | some.sampled_from([0.0, 1.0, 0.5, "a", ""]),
    lambda inner: some.lists(inner, max_size=2) | some.dictionaries(some.text("ab", max_size=1), inner, max_size=2),
    max_leaves=3,
)
DISTRIBUTIONS = some.one_of(
    some.builds(lambda low, width: uniform(low, low + width + abs(low) * 1e-6), some.floats(-1e9, 1e9), POSITIVE),
    some.builds(lambda low, factor: loguniform(low, low * factor), POSITIVE, some.floats(1.001, 1e6)),
    some.builds(
        lambda low, q, steps: quniform(low, low + q * steps, q),
        some.floats(-99, 99), some.floats(0.01, 9), some.integers(2, 500),
    ),
    some.builds(lambda low, width: randint(low, low + width), some.integers(-999, 999), some.integers(1, 10**9)),
    some.builds(lambda low, width: lograndint(low, low + width), some.integers(1, 999), some.integers(1, 10**9)),
    some.builds(normal, some.floats(-99, 99), some.floats(1e-3, 99)),
    some.builds(
        choice, some.lists(PLAIN, min_size=1, max_size=6, unique_by=lambda each: json.dumps(each, sort_keys=True))
    ),
)  # fmt: skip


@pytest.mark.long
@examples(150)
@given(DISTRIBUTIONS, some.lists(PLAIN, min_size=1, max_size=3), some.integers(0, 99))
def test_a_parameter_comes_back(made: Distribution, axis: list[Any], seed: int) -> None:
    over = space({"x": made, "o": {"y": axis, "z": uniform(0, 1)}})
    assert isinstance(over, SampledSpace)
    known = distributions_of(over)
    trial = optuna.trial.Trial(*_asked(seed))
    case = over.built(lambda path, leaf: value_of(leaf, suggested(trial, path, known[path])))
    params = params_of(over, json.loads(json.dumps(case)))
    assert params is not None
    if made.kind == "normal":
        assert params.pop("x") == pytest.approx(trial.params["x"], rel=1e-6)
    expected = {path: value for path, value in trial.params.items() if path in params}
    if params["o.y"] != expected["o.y"]:  # a list that has a value twice
        assert axis[params["o.y"]] == axis[expected["o.y"]]
        params["o.y"] = expected["o.y"]
    assert params == expected


@pytest.mark.parametrize(
    "case",
    [
        {"x": 2.0, "n": 1, "c": "a"},
        {"x": 0.5, "n": 1.5, "c": "a"},
        {"x": 0.5, "n": 9, "c": "a"},
        {"x": 0.5, "n": 1, "c": "b"},
        {"x": True, "n": 1, "c": "a"},
        {"x": "0.5", "n": 1, "c": "a"},
        {"x": 0.5, "n": 1},
        {"x": 0.5, "n": 1, "c": "a", "more": 1},
    ],
)
def test_a_case_of_another_space_is_none_of_this_one(case: dict[str, Any]) -> None:
    over = space(x=uniform(0, 1), n=randint(1, 3), c=choice(["a", True]))
    assert isinstance(over, SampledSpace)
    assert params_of(over, {"x": 0.5, "n": 1, "c": True}) == {"x": 0.5, "n": 1, "c": 1}
    assert params_of(over, case) is None


def _asked(seed: int) -> tuple[optuna.Study, int]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    return study, study.ask()._trial_id
