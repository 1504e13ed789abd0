"""Distributions: what they draw, how they are written, stored and read, and what is refused."""

import json
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sparktrain.config.distribution import (
    Distribution,
    choice,
    from_document,
    lograndint,
    loguniform,
    normal,
    quniform,
    randint,
    to_document,
    uniform,
)
from sparktrain.config.param_files.distribution_text import is_call, parsed
from sparktrain.errors import SpecError
from tests.support.examples import examples

EACH = [
    uniform(-1, 0.5),
    loguniform(1e-5, 1e-1),
    quniform(0, 1, 0.1),
    quniform(-3, 8, 2.5),
    randint(1, 8),
    lograndint(1, 1024),
    choice(["relu", None, True, 1, 1.5, [1, 2], {"a": "b"}]),
    normal(-2, 0.5),
]
each_distribution = pytest.mark.parametrize("made", EACH, ids=str)


@each_distribution
def test_a_distribution_comes_back_from_json_and_from_its_text(made: Distribution) -> None:
    assert from_document(json.loads(json.dumps(to_document(made)))) == made
    as_python = str(made).replace("null", "None").replace("true", "True")
    assert parsed(as_python, "--space") == made
    assert parsed(f"  st.{as_python} ", "--space") == made


@each_distribution
def test_draws_are_within_the_range_and_reach_all_of_it(made: Distribution) -> None:
    source = random.Random(1)
    found = [made.draw(source) for _ in range(3000)]
    if made.values is not None:
        assert {json.dumps(each) for each in found} == {
            json.dumps(each) for each in made.values
        } or made.kind == "lograndint"
        assert made.size == len(made.values)
        assert all(each in made.values for each in found)
    elif made.kind == "normal":
        assert sum(found) / len(found) == pytest.approx(-2, abs=0.05)
    else:
        low, high = made.arguments
        assert low <= min(found) < max(found) <= high


def test_a_logarithm_is_spread_evenly() -> None:
    source = random.Random(1)
    below = sum(loguniform(1e-4, 1).draw(source) < 1e-2 for _ in range(4000))
    assert 1850 < below < 2150
    small = sum(lograndint(1, 100).draw(source) <= 10 for _ in range(4000))
    assert 1800 < small < 2600


@examples(200)
@given(some.floats(-1e6, 1e6), some.floats(1e-3, 1e6), some.floats(0.01, 1.0))
def test_steps_stay_within_their_ends(low: float, width: float, share: float) -> None:
    high = low + width
    if high - low > 0 and 0 < width * share <= high - low:
        values = quniform(low, high, width * share).values
        assert values is not None
        assert values[0] == pytest.approx(low)
        assert values[-1] <= high + 1e-6 * max(1, abs(high))


@examples(100)
@given(some.floats(1e-6, 1 - 1e-6), some.floats(-100, 100), some.floats(1e-3, 100))
def test_a_normal_value_has_its_share(share: float, mean: float, deviation: float) -> None:
    made = normal(mean, deviation)
    assert made.share(made.quantile(share)) == pytest.approx(share, rel=1e-6)


def test_equal_distributions_are_equal() -> None:
    assert uniform(0, 1) == uniform(0.0, 1.0) == uniform(high=1, low=0)
    assert uniform(0, 1) != loguniform(1, 2)
    assert choice([1, 2]) != choice([2, 1])
    assert choice([1]) != choice([1.0]) or json.dumps(to_document(choice([1]))) != json.dumps(
        to_document(choice([1.0]))
    )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: uniform(1, 1), r"uniform\(1, 1\): the range is empty, .* list one value as it is"),
        (lambda: uniform(2, 1), r"uniform\(2, 1\): the range is inverted, .*write the smaller number first: 1.0, 2.0"),
        (lambda: uniform("0", 1), r"is given '0' \(str\), a number is expected; write it without quotes"),
        (lambda: uniform(True, 2), r"True \(bool\), a number is expected"),
        (lambda: uniform(float("nan"), 1), "must be finite"),
        (lambda: uniform(-1.5e308, 1.5e308), "wider than a float can hold"),
        (lambda: loguniform(0, 1), r"starts at 0.0, which has no logarithm: start at a small number such as 1e-6"),
        (lambda: loguniform(-1, 1), r"starts at -1.0, which has no logarithm"),
        (lambda: lograndint(0, 8), r"lograndint\(0, 8\): the range starts at 0, .*start at 1"),
        (lambda: randint(1.5, 3), r"1.5 \(float\), a whole number is expected; use uniform\(\)"),
        (lambda: randint(3, 1), "inverted"),
        (lambda: randint(0, 2**60), r"beyond 2\*\*53"),
        (lambda: quniform(0, 1, 0), r"the step 0 must be above 0"),
        (lambda: quniform(0, 1, 2), r"the step 2 must be above 0 and fit into the range"),
        (lambda: choice([]), "empty list"),
        (lambda: choice("ab"), "a list is expected"),
        (lambda: choice([1, 2, 1]), r"choice\(\) lists 1 twice"),
        (lambda: normal(0, 0), "the standard deviation 0 must be above 0"),
        (lambda: from_document({"uniform": [1]}), r"uniform\(\) has 1 arguments, 2 are expected"),
    ],
)  # fmt: skip
def test_a_wrong_distribution_is_refused_with_the_next_step(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        call()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("loguniform(1e-4,1e-1)", loguniform(1e-4, 1e-1)),
        ("sparktrain.uniform(-1, high=+2)", uniform(-1, 2)),
        ("choice(['a', None, [1, 2]])", choice(["a", None, [1, 2]])),
        ("choice(values=('a', 'b'))", choice(["a", "b"])),
        ("normal(sd=1, mean=0)", normal(0, 1)),
        ("quniform(0, 1, q=0.25)", quniform(0, 1, 0.25)),
    ],
)
def test_a_distribution_is_read_as_python_writes_it(text: str, expected: Distribution) -> None:
    assert is_call(text)
    assert parsed(text, "--space") == expected


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("loguniform(1e-4", r"^--space: .* cannot be read; write it as in Python: loguniform\(1e-4, 1e-1\)"),
        ("logunifrom(1, 2)", "there is no distribution 'logunifrom'; did you mean 'loguniform'"),
        ("uniform(0, __import__('os').getpid())", "is no value; write numbers, text, or a list"),
        ("uniform(0, 1)(2)", "there is no distribution"),
        ("choice([relu, gelu])", "is no value; write numbers"),
        ("choice(relu)", "write text in quotes: 'relu'"),
        ("uniform(0, 1, 2)", r"^--space: uniform\(\) has 3 arguments, 2 are expected; write uniform"),
        ("uniform(low=0)", r"uniform\(\) has 1 arguments"),
        ("uniform(0, top=1)", r"uniform\(\) has no argument 'top'"),
        ("uniform(*[0, 1])", "is no value"),
        ("uniform(**{'low': 0})", "has no argument None"),
        ("uniform(2, 1)", "^--space: .*inverted"),
        ("3", "is no distribution; write one of uniform"),
        ("(" * 5000 + ")" * 5000, "cannot be read"),
    ],
)
def test_wrong_text_is_refused_and_never_evaluated(text: str, pattern: str) -> None:
    with pytest.raises(SpecError, match=pattern):
        parsed(text, "--space")


@pytest.mark.parametrize("value", ["relu", "a (b", 3, None, "x)", "[1](2"])
def test_other_values_are_no_calls(value: object) -> None:
    assert not is_call(value)


def test_the_text_of_a_number_is_exact_enough() -> None:
    assert math.isclose(parsed(str(uniform(1 / 3, 2 / 3)), "--space").arguments[0], 1 / 3, rel_tol=1e-11)


def test_a_long_choice_is_checked_in_one_walk():
    # Compared one by one with all values before them, 30,000 values took 13 s.
    assert choice(range(100_000)).size == 100_000
    with pytest.raises(SpecError, match="lists 7 twice"):
        choice([*range(100_000), 7])
