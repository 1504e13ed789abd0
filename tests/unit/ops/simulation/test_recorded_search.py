"""A simulated sampler gets the recorded trial nearest to what it asks for, each once, and learns from that one."""

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.base.ids import TrialId
from sparktrain.config.distribution import choice, loguniform, normal, randint, uniform
from sparktrain.config.stoppers import Median
from sparktrain.errors import SpecError
from sparktrain.ops.simulation.comparison import Comparison
from sparktrain.ops.simulation.curves import CurvePoint, LearningCurve, Recorded, of_points
from sparktrain.ops.simulation.recorded_search import NearestCase, RecordedCases, RecordedSearch, searches
from sparktrain.ops.simulation.virtual_run import SimulatedRun, VirtualRun
from sparktrain.search.sampled_space import as_space, space
from sparktrain.search.sampler import Observation, Suggestion
from sparktrain.search.space_json import to_document
from tests.support.examples import examples

SPACE = {"lr": loguniform(1e-4, 1.0), "dropout": uniform(0, 0.5), "units": [16, 64], "act": choice(["relu", "gelu"])}


def recorded(trials: int, seed: int = 0) -> Recorded:
    """Random cases, and a loss with one valley."""
    draw, chosen = random.Random(seed), space(SPACE)
    params = [chosen.draw(draw) for _ in range(trials)]
    curves = tuple(of_points(CurvePoint(step, step + 1.0, _loss(case) + 1 / (step + 1)) for step in range(3))
                   for case in params if case is not None)  # fmt: skip
    cases = RecordedCases(tuple(case for case in params if case is not None), to_document(chosen, None))
    return Recorded("made", "loss", "min", curves, tuple(range(trials)), cases)


def _loss(case: dict[str, Any]) -> float:
    return (math.log10(case["lr"]) + 2) ** 2 + (4 * case["dropout"] - 1) ** 2 + (case["units"] == 16)


def run(made: Recorded, search: RecordedSearch, trials: int, *stopper: Median) -> SimulatedRun:
    return VirtualRun(made.curves, 4, "loss", "min", stopper, order=search, trials=trials).run()


def near(document: dict[str, Any], *params: dict[str, Any]) -> NearestCase:
    return NearestCase(RecordedCases(params, to_document(as_space(document), None)))


def test_parameters_are_as_far_apart_as_in_their_ranges() -> None:
    found = near({"lr": loguniform(1e-4, 1.0)}, {"lr": 1e-4}, {"lr": 1e-2}, {"lr": 1.0})
    assert [found.take({"lr": 0.02}), found.take({"lr": 0.02}), found.take({"lr": 0.02})] == [1, 2, 0]
    found = near({"n": randint(0, 100), "x": normal(0, 1)}, {"n": 0, "x": 0.0}, {"n": 100, "x": 0.0})
    assert found.take({"n": 60, "x": 3.0}) == 1


def test_values_of_a_choice_are_as_far_apart_as_both_ends_of_a_range() -> None:
    found = near({"act": choice(["a", "b", "c"]), "x": uniform(0, 1)}, {"act": "a", "x": 0.0}, {"act": "c", "x": 0.9})
    assert found.take({"act": "a", "x": 0.9}) == 0
    found = near({"act": ["a", "b", "c"], "x": uniform(0, 1)}, {"act": "c", "x": 0.5}, {"act": "b", "x": 0.4})
    assert found.take({"act": "a", "x": 0.4}) == 1  # c is no farther than b


def test_a_parameter_that_only_one_has_counts_as_another_value() -> None:
    found = near({"x": uniform(0, 1), "y": uniform(0, 1)}, {"x": 0.5}, {"x": 0.4, "y": 0.2})
    assert found.take({"x": 0.5, "y": 0.3}) == 1


@pytest.mark.long
@examples(25)
@given(st.integers(1, 30), st.integers(1, 8), st.sampled_from(["random", "tpe", "qmc"]))
def test_each_trial_runs_once_and_no_more_than_asked_for(trials: int, slots: int, name: str) -> None:
    made = recorded(30)
    [search] = searches(made.cases, name, "loss", False, trials, 1)
    found = VirtualRun(made.curves, slots, "loss", "min", (), order=search, trials=trials).run()
    numbers = [each.recorded for each in found.trials]
    assert len(set(numbers)) == len(numbers) == trials
    assert [each.value for each in found.trials] == [made.curves[number].last for number in numbers]


@pytest.mark.long
def test_the_same_seed_gives_the_same_order_and_another_one_another() -> None:
    made = recorded(100)
    orders = [[each.recorded for each in run(made, search, 40, Median()).trials]
              for search in (*searches(made.cases, "tpe", "loss", False, 40, 2),
                             *searches(made.cases, "tpe", "loss", False, 40, 1))]  # fmt: skip
    assert orders[0] == orders[2] != orders[1]


class Recording:
    """Suggests a fixed case, and keeps what it learns."""

    learns, total = True, None

    def __init__(self) -> None:
        self.seen: list[Observation] = []

    def suggest(self, count: int) -> Suggestion:
        return Suggestion(({"x": 0.0},), False)

    def observe(self, observation: Observation) -> None:
        self.seen.append(observation)

    def restore(self, history: Any) -> None:
        raise AssertionError("a simulation has no history")


def test_a_sampler_learns_from_what_the_recorded_trial_had_and_not_from_what_it_asked_for() -> None:
    curves = [of_points([CurvePoint(0, 1.0, 5.0)]), LearningCurve((), 1.0), of_points([CurvePoint(2, 1.0, math.nan)])]
    cases = RecordedCases(({"x": 0.1}, {"x": 0.2}, {"x": 0.3}), to_document(space({"x": uniform(0, 1)}), None))
    sampler = Recording()
    VirtualRun(curves, 1, "loss", "min", (), order=_ended_after(RecordedSearch(cases, sampler, "loss"), 3)).run()
    results = [each for each in sampler.seen if each.trial < 0]
    assert [(each.trial, each.params["x"], str(each.status), dict(each.metrics)) for each in results] == [
        (-1, 0.1, "succeeded", {"loss": 5.0}), (-2, 0.2, "failed", {}), (-3, 0.3, "failed", {}),
    ]  # fmt: skip
    assert [(each.trial, each.params) for each in sampler.seen if each.trial >= 0] == [
        (TrialId(number), {"x": 0.0}) for number in range(3)
    ]


def _ended_after(search: RecordedSearch, trials: int) -> RecordedSearch:
    propose, left = search.propose, [trials]

    def limited(count: int) -> tuple[list[int], bool]:
        found, _ = propose(1)
        left[0] -= 1
        return found, left[0] == 0

    search.propose = limited  # type: ignore[method-assign]
    return search


@pytest.mark.long
def test_the_table_has_means_over_seeds_and_names_of_trials() -> None:
    made = recorded(50)
    compared = Comparison(made, [2], [Median()], ["tpe", "random"], trials=20, seeds=3)
    assert [(len(each.runs), each.choice.sampler, bool(each.choice.stopper)) for each in compared.simulated] == [
        (1, None, False), (3, "tpe", False), (3, "random", False),
        (1, None, True), (3, "tpe", True), (3, "random", True),
    ]  # fmt: skip
    assert compared.lines()[1:] == [
        "each row runs 20 of them",
        "a sampler gets the recorded trial nearest to what it asks for; its rows are means over 3 seeds",
    ]
    rows = compared.as_json()["runs"]
    assert [each["seed"] for each in rows[:5]] == [None, 0, 1, 2, 0]
    first = rows[0]
    assert first["value"] == min(curve.last for curve in made.curves[:20])
    assert made.curves[first["best"]].last == first["value"]


@pytest.mark.parametrize(("values", "message"), [
    ([{"x": 1}, {"x": 2}], "the run has a list of cases"),
])  # fmt: skip
def test_a_space_without_single_parameters_is_refused(values: Any, message: str) -> None:
    cases = RecordedCases(tuple(values), to_document(as_space(values), None))
    with pytest.raises(SpecError, match=message):
        searches(cases, "tpe", "loss", False, 2, 1)


def test_conditions_are_refused() -> None:
    from sparktrain.search.space import when

    chosen = space({"kind": choice(["a", "b"]), "x": when(lambda p: p["kind"] == "a", uniform(0, 1))})
    cases = RecordedCases(({"kind": "b"},), to_document(chosen, None))
    with pytest.raises(SpecError, match="has conditions"):
        searches(cases, "tpe", "loss", False, 1, 1)
