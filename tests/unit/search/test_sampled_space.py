"""Spaces with distributions: how they are built, shown, stored and checked."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import json as fast_json

import sparktrain as st
from sparktrain.errors import FunctionError, SpecError
from sparktrain.search.sampled_space import SampledSpace, as_choices, as_grid, as_space, space
from sparktrain.search.space import Space, grid, when
from sparktrain.search.space_json import from_document, to_document
from sparktrain.usercode.target import check_call

NESTED = {
    "lr": st.loguniform(1e-5, 1e-1),
    "units": [32, 64],
    "epochs": 10,
    "optimizer": {"name": st.choice(["sgd", "adam"]), "decay": [0.0, 0.1], "nesterov": True},
}


def sampled(values: Any) -> SampledSpace:
    made = as_space(values)
    assert isinstance(made, SampledSpace)
    return made


def test_a_dict_with_a_distribution_is_sampled() -> None:
    made = sampled(NESTED)
    assert made.names == ("lr", "units", "epochs", "optimizer")
    assert list(made.distributions) == ["lr", "optimizer.name"]
    assert made.axes == {"units": (32, 64), "optimizer.decay": (0.0, 0.1)}
    assert made.conditional == ()
    assert made.count is None
    assert space(NESTED) == made == space(**NESTED)


def test_a_dict_of_lists_stays_a_grid() -> None:
    assert as_space({"a": [1, 2]}) == grid(a=[1, 2])
    assert space(a=[1, 2], where=None) == grid(a=[1, 2])
    with pytest.raises(SpecError, match="a list is expected"):
        as_space({"a": 1})


def test_it_is_shown_in_words() -> None:
    assert str(sampled(NESTED)) == (
        'lr ~ loguniform(1e-05, 0.1), units in a grid of [32, 64], epochs = 10, optimizer {name ~ choice(["sgd", '
        '"adam"]), decay in a grid of [0.0, 0.1], nesterov = True}'
    )
    made = space(a=st.uniform(0, 1), b=when(lambda p: p["a"] > 0, [1, 2], otherwise=0), where=lambda p: True)
    assert str(made) == (
        "a ~ uniform(0, 1), b ~ choice([1, 2]) when a condition holds, otherwise 0, where a condition holds"
    )


def test_a_case_has_what_was_chosen_and_gives_it_back() -> None:
    made = sampled(NESTED)
    for seed in range(20):
        case = made.draw(random.Random(seed))
        assert case is not None
        assert list(case) == list(NESTED)
        assert case["epochs"] == 10
        assert case["optimizer"]["nesterov"] is True
        chosen = made.chosen(json.loads(json.dumps(case)))
        assert chosen == {
            "lr": case["lr"],
            "units": case["units"],
            "optimizer.name": case["optimizer"]["name"],
            "optimizer.decay": case["optimizer"]["decay"],
        }
    assert made.chosen({"lr": 1}) is None
    assert made.chosen({**case, "epochs": 11}) is None
    assert made.chosen({**case, "optimizer": 3}) is None


def test_a_condition_sees_what_is_before_it_and_beside_it() -> None:
    seen: list[dict[str, Any]] = []

    def check(params: dict[str, Any]) -> bool:
        seen.append(params)
        return params["name"] == "sgd"

    made = space(a=st.uniform(0, 1), o={"name": st.choice(["sgd", "adam"]), "momentum": when(check, st.uniform(0, 1))})
    for seed in range(20):
        case = made.draw(random.Random(seed))  # type: ignore[attr-defined]
        assert ("momentum" in case["o"]) == (case["o"]["name"] == "sgd")
    assert {tuple(params) for params in seen} == {("a", "name")}


def test_names_with_dots_are_found_in_a_case() -> None:
    made = sampled({"model.size": st.randint(1, 9), "model": {"lr": st.uniform(0, 1)}, "o": {"a.b": [1, 2], "c": 3}})
    case = {"model.size": 4, "model": {"lr": 0.5}, "o": {"a.b": 2, "c": 3}}
    assert made.chosen(case) == {"model.size": 4, "model.lr": 0.5, "o.a.b": 2}
    assert made.chosen({**case, "model": {}}) is None


@pytest.mark.parametrize("values", [NESTED, {"x": st.normal(0, 1)}, {"x": st.quniform(0, 1, 0.5), "where": [1]}])
def test_a_space_comes_back_from_json_and_has_the_same_digest(values: Any) -> None:
    made = sampled(values)
    document = to_document(made, 5)
    again = from_document(json.loads(json.dumps(document)))
    assert again == made
    assert fast_json.encode(to_document(again, 7)) == fast_json.encode(document)
    assert str(again) == str(made)


def test_a_space_with_conditions_is_resumed_by_the_same_call_only() -> None:
    for made in (
        space(x=st.uniform(0, 1), where=lambda p: True),
        space(x=st.uniform(0, 1), y=when(lambda p: True, st.uniform(0, 1))),
    ):
        document = json.loads(json.dumps(to_document(made, 5)))
        with pytest.raises(SpecError, match=r"conditions \(when, where\), .*resume it by the same call or command"):
            from_document(document)


def test_the_function_is_checked_against_every_set_of_names() -> None:
    def train(lr: float, units: int, epochs: int) -> float:
        raise NotImplementedError

    with pytest.raises(FunctionError, match="has no parameter 'optimizer'"):
        check_call(train, sampled(NESTED).examples())
    rare = space(x=st.uniform(0, 1), rare=when(lambda p: p["x"] > 0.9, st.uniform(0, 1)))
    with pytest.raises(FunctionError, match="has no parameter 'rare'"):
        check_call(lambda x: x, rare.examples())


def test_examples_are_always_the_same_and_end() -> None:
    made = sampled(NESTED)
    assert list(made.examples()) == list(made.examples())
    assert 0 < len(list(made.examples())) <= 1000


def test_a_grid_becomes_choices_and_counted_distributions_a_grid() -> None:
    listed = grid(a=[1, 2, 2], b=when(lambda p: p["a"] == 1, ["x", "y"]))
    assert as_choices(listed).distributions == {"a": st.choice([1, 2]), "b": st.choice(["x", "y"])}
    counted = sampled(
        {"a": st.randint(1, 2), "b": st.choice(["x", "y"]), "c": 5, "d": st.quniform(0, 1, 0.5), "e": [7]}
    )
    cases = list(as_grid(counted))
    assert len(cases) == 12
    assert cases[0] == {"a": 1, "b": "x", "c": 5, "d": 0.0, "e": 7}
    with pytest.raises(SpecError, match="'optimizer' is a dict: use sampler='random'"):
        as_grid(sampled({"optimizer": {"x": st.randint(1, 2)}}))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: grid(lr=st.uniform(0, 1)), r"'lr' is uniform\(0, 1\), a grid lists values; use space\(lr=...\)"),
        (lambda: grid(lr=when(lambda p: True, st.uniform(0, 1))), r"a grid lists values, uniform\(0, 1\) is sampled"),
        (lambda: space(lr=st.uniform(0, 1), where=3), r"space\(where=...\): 3 \(int\) is not a function"),
        (lambda: space(lr=st.uniform(0, 1), where=lambda p: False), "refuses 10,000 draws .* correct the condition"),
        (lambda: space(lr=st.uniform(0, 1), where=lambda p: p["x"]), "KeyError"),
        (lambda: space(lr=st.uniform(0, 1), ctx=1), "'ctx' is not a hyperparameter"),
        (lambda: space(lr=st.uniform(0, 1), f=print), r"'f' holds .*a value is None"),
        (lambda: space({"a-b": 1, "lr": st.uniform(0, 1)}), "'a-b' cannot be the name"),
        (lambda: space({"a.": 1}), "'a.' cannot be the name .* such as 'a'"),
        (lambda: space({"model.h-size": 1}), "such as 'model.h_size'"),
        (lambda: space(o={"a": {"b": [1]}, "a.b": [2]}, lr=st.uniform(0, 1)), "two parameters are called 'o.a.b'"),
        (lambda: space(o={1: st.uniform(0, 1)}), "keys are text: write '1'"),
        (lambda: space(lr=st.uniform(0, 1), a=[]), "empty list"),
        (lambda: space(), "at least one parameter"),
    ],
)
def test_a_wrong_space_is_refused(call: Callable[[], Space], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        call()
