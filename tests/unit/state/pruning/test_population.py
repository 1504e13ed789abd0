"""Who takes over whom in population based training, and with which parameters."""

import random
from typing import Any

import pytest

from sparktrain.base.ids import TrialId
from sparktrain.config.distribution import choice, lograndint, loguniform, normal, quniform, randint, uniform
from sparktrain.config.stoppers import PBT, rules_of
from sparktrain.errors import SpecError
from sparktrain.search.sampled_space import leaves_for, space
from sparktrain.search.space import grid, when
from sparktrain.state.pruning.explore import explored
from sparktrain.state.pruning.population import PopulationRule, chance, donors
from sparktrain.state.pruning.rule import Aim

CHANCE = 0.8200146582776323
"""What seed 7 gives trial 2 first."""
INF = float("inf")
AIM = Aim("loss", largest=False)
EACH: dict[str, Any] = {
    "u": uniform(0, 1),
    "l": loguniform(1e-4, 1e-1),
    "q": quniform(0, 1, 0.25),
    "i": randint(1, 8),
    "g": lograndint(16, 1024),
    "c": choice(["sgd", "adam", "lion"]),
    "n": normal(0, 1),
    "listed": (32, 64, 128),
}
"""One leaf of each kind."""


def costs(*values: float) -> dict[TrialId, float]:
    return {TrialId(number): value for number, value in enumerate(values)}


@pytest.mark.parametrize(
    ("trial", "values", "quantile", "expected"),
    [
        (4, (1, 2, 3, 4, 5), 0.2, [0]),
        (3, (1, 2, 3, 4, 5), 0.2, []),
        (3, (1, 2, 3, 4, 5), 0.4, [0, 1]),
        (1, (1, 2), 0.2, [0]),
        (0, (1,), 0.5, []),
        (2, (1, 2, 3), 0.5, [0]),
        (3, (2, 2, 2, 2), 0.5, []),
        (3, (1, 2, 2, 2), 0.5, [0]),
        (1, (1, INF, 2, 3), 0.25, [0]),
        (1, (INF, INF, INF), 0.3, []),
    ],
)
def test_the_worst_take_over_the_best(
    trial: int, values: tuple[float, ...], quantile: float, expected: list[int]
) -> None:
    assert donors(TrialId(trial), costs(*values), quantile) == expected


def test_a_trial_is_compared_once_at_each_interval_and_not_at_its_end() -> None:
    rule = PopulationRule(PBT(every=5, most=20), AIM)
    assert list(rule.due(TrialId(0), 4)) == []
    assert list(rule.due(TrialId(0), 5)) == [5]
    rule.record(TrialId(0), 5, 1.0)
    assert list(rule.due(TrialId(0), 9)) == []
    assert (rule.next_due(TrialId(0)), rule.next_due(TrialId(1))) == (10, 5)
    assert list(rule.due(TrialId(0), 17)) == [15], "of intervals that it crossed at once the last one counts"
    assert list(rule.due(TrialId(0), 20)) == []


def test_parameters_stay_in_their_spaces_whatever_happens() -> None:
    made = space({name: list(leaf) if isinstance(leaf, tuple) else leaf for name, leaf in EACH.items()})
    leaves = leaves_for(made, [PBT()])
    assert dict(leaves) == EACH
    source = random.Random(1)
    params = made.draw(source)  # type: ignore[attr-defined]
    for number in range(2000):
        params = explored(params, leaves, 0.1, (0.8, 1.2), chance(3, TrialId(0), number))
        assert set(params) == set(EACH)
        for name, leaf in EACH.items():
            if isinstance(leaf, tuple):
                assert params[name] in leaf
            elif leaf.values is not None:
                assert params[name] in leaf.values
                assert type(params[name]) is type(leaf.values[0])
            elif leaf.kind != "normal":
                assert leaf.arguments[0] <= params[name] <= leaf.arguments[1]


def test_each_number_moves_and_each_choice_goes_to_a_neighbour() -> None:
    before = {"u": 0.5, "l": 0.01, "q": 0.5, "i": 4, "g": 100, "c": "adam", "n": 1.0, "listed": 64}
    after = explored(before, tuple(EACH.items()), 0.0, (1.2,), random.Random(0))
    assert {name: after[name] for name in "ulqign"} == pytest.approx(
        {"u": 0.6, "l": 0.012, "q": 0.75, "i": 5, "g": 120, "n": 1.2}
    )
    assert after["c"] in ("sgd", "lion")
    assert after["listed"] in (32, 128)
    assert before["u"] == 0.5, "the donor keeps its own"


def test_nested_parameters_are_found_and_constants_stay() -> None:
    made = space(optimizer={"lr": uniform(0, 1), "name": "sgd"}, epochs=3, model={"a.b": uniform(0, 1)})
    params = {"optimizer": {"lr": 0.5, "name": "sgd"}, "epochs": 3, "model": {"a.b": 0.25}}
    after = explored(params, leaves_for(made, [PBT()]), 0.0, (2.0,), random.Random(0))
    assert after == {"optimizer": {"lr": 1.0, "name": "sgd"}, "epochs": 3, "model": {"a.b": 0.5}}
    assert params["optimizer"] == {"lr": 0.5, "name": "sgd"}


def test_chance_is_the_same_on_any_machine() -> None:
    assert chance(7, TrialId(2), 0).random() == CHANCE
    assert len({chance(seed, TrialId(t), n).random() for seed in (1, 2) for t in (0, 1) for n in (0, 1)}) == 8


@pytest.mark.parametrize(
    ("of", "problem"),
    [
        (space(lr=uniform(0, 1), momentum=when(lambda p: True, uniform(0, 1))), "a space with conditions"),
        (space(lr=uniform(0, 1), where=lambda p: True), "a space with conditions"),
        (grid(lr=[0.1]), "has one value of each"),
    ],
)
def test_spaces_that_cannot_be_explored_are_refused(of: Any, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        leaves_for(of, [PBT()])
    assert leaves_for(of, []) == ()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"every": 0}, r"every \(0\) must be a whole number"),
        ({"quantile": 0.6}, r"quantile \(0.6\) must be a number above 0, and at most 0.5"),
        ({"resample": 1.5}, r"resample \(1.5\) must be a number from 0 to 1"),
        ({"factors": (1.0,)}, "factors .* must be numbers above 0, and none of them 1"),
        ({"factors": ()}, "factors .* must be numbers above 0"),
        ({"most": 1}, r"most \(1\) must be a whole number from 2"),
    ],
)
def test_wrong_options(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        PBT(**options)


def test_rungs_beside_it_are_refused_and_other_rules_are_not() -> None:
    with pytest.raises(SpecError, match=r"pbt and asha.*pass one of them"):
        rules_of(["pbt", "asha"])
    assert rules_of("pbt:every=5,quantile=0.3") == (PBT(every=5, quantile=0.3),)
    assert len(rules_of([PBT(), "patience", "threshold"])) == 3
