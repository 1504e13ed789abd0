"""Which end of each metric is better, and the bounds that a trial must keep."""

import math
from typing import Any

import pytest

from sparktrain.config.objectives import Constraint, Objective, constraints, objectives
from sparktrain.errors import SpecError


def test_a_dict_names_the_better_end_of_each_metric() -> None:
    assert objectives({"latency": "min", "accuracy": None}) == (
        Objective("latency", "min"),
        Objective("accuracy", "max"),
    )


@pytest.mark.parametrize("value", [{}, "accuracy", None, {1: "max"}, {None: "max"}, {"a": "up"}, {"speed": None}])
def test_other_objectives_are_refused(value: Any) -> None:
    with pytest.raises(SpecError, match=r"objectives|speed"):
        objectives(value)


def test_a_text_is_a_bound() -> None:
    assert constraints([" val/acc@1 >= 0.5", "size_mb<5", "t > -1e3"]) == (
        Constraint("val/acc@1", ">=", 0.5),
        Constraint("size_mb", "<", 5.0),
        Constraint("t", ">", -1000.0),
    )


@pytest.mark.parametrize(
    "text",
    ["latency", "a == 1", "a = 1", "a != 1", "a <= nan", "a < inf", "a < b", "<= 1", "a <=", "1 < a < 2", 5, None],
)
def test_other_constraints_are_refused_with_the_grammar(text: Any) -> None:
    with pytest.raises(SpecError, match=r"^constraints\[0\] .*METRIC <= NUMBER"):
        constraints([text])


@pytest.mark.parametrize("value", ["a <= 1", None, 3, {"a": "<= 1"}])
def test_constraints_are_a_list(value: Any) -> None:
    with pytest.raises(SpecError, match=r"^constraints is .*a list of texts"):
        constraints(value)


@pytest.mark.parametrize(("operator", "kept"), [("<=", (1.0, 2.0)), ("<", (1.0,)), (">=", (2.0, 3.0)), (">", (3.0,))])
def test_what_keeps_a_bound(operator: str, kept: tuple[float, ...]) -> None:
    bound = Constraint("a", operator, 2.0)
    assert tuple(value for value in (1.0, 2.0, 3.0, math.nan) if bound.holds({"a": value})) == kept
    assert not bound.holds({})
