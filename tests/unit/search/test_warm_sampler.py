"""Points that are tried first, results of former runs, and where parameters of elsewhere are in a space."""

from statistics import median
from typing import Any

import pytest

from sparktrain.base.ids import TrialId
from sparktrain.config.distribution import choice, loguniform, normal, quniform, randint, uniform
from sparktrain.search.named_samplers import SamplerChoice
from sparktrain.search.optuna_sampler import Goal
from sparktrain.search.sampled_space import space
from sparktrain.search.sampler import Observation, ObservedStatus, PastSuggestion, Sampler, Suggestion
from sparktrain.search.space import cases, grid, when, zipped
from sparktrain.search.warm_sampler import Places, WarmSampler
from sparktrain.testing.sampler_contract import SamplerContract

SPACE = space(
    lr=loguniform(1e-5, 1),
    n=randint(1, 8),
    q=quniform(0, 1, 0.25),
    z=normal(0, 1),
    u=[16, 64],
    e=10,
    o={"name": choice(["sgd", "adam"]), "k": 1},
    where=lambda p: p["n"] != 5,
)
INSIDE = {"lr": 0.1, "n": 2, "q": 0.25, "z": 0.5, "u": 64, "o": {"name": "sgd"}}
POINTS = [{"x": 1.5, "k": 1}, {"x": 2.5, "k": 2}, {"x": 3.5, "k": 3}]
NARROW = space(x=uniform(0, 5), k=choice([1, 2, 3]))


def tpe(trials: int = 24) -> Sampler:
    return SamplerChoice(requested="tpe", trials=trials, seed=5, goal=Goal("y", True)).sampler(NARROW)


def known(count: int, value: float = 1.0) -> list[Observation]:
    return [
        Observation(TrialId(-1 - n), {"x": n / 4, "k": 1}, ObservedStatus.SUCCEEDED, {"y": value * n})
        for n in range(count)
    ]


class TestWarmTpe(SamplerContract):
    """What follows a restart is equal wherever the run is cut: among the points, and after them."""

    def make(self) -> Sampler:
        return WarmSampler(tpe(), POINTS, known(12))


NUMBERS = space(x=uniform(0, 5), y=uniform(0, 5), k=[1, 2])


def cmaes(trials: int = 24) -> Sampler:
    return SamplerChoice(requested="cmaes", trials=trials, seed=5, goal=Goal("y", False)).sampler(NUMBERS)


def around(x: float, y: float) -> list[Observation]:
    """Results all over the space; those near this point are the best."""
    cases = [{"x": n % 7 * 0.8, "y": n // 7 * 0.8, "k": 1 + n % 2} for n in range(49)]
    costs = [(case["x"] - x) ** 2 + (case["y"] - y) ** 2 for case in cases]
    return [
        Observation(TrialId(-1 - n), case, ObservedStatus.SUCCEEDED, {"y": cost})
        for n, (case, cost) in enumerate(zip(cases, costs, strict=True))
    ]


class TestWarmCmaes(SamplerContract):
    """The same for CMA-ES, which starts at the best of what is known."""

    def make(self) -> Sampler:
        return WarmSampler(cmaes(), [{"x": 3.5, "y": 1.5, "k": 1}], around(4.0, 0.8))


class TestWarmGrid(SamplerContract):
    """The same for a listed space, which runs each case once."""

    def make(self) -> Sampler:
        return WarmSampler(SamplerChoice().sampler(grid(a=[1, 2, 3], b=[1, 2, 3, 4])), [{"a": 3, "b": 1}], [])


def drawn(sampler: Sampler, batches: list[int]) -> list[dict[str, Any]]:
    return [case for count in batches for case in sampler.suggest(count).cases]


def test_points_come_first_in_their_order_and_count_as_trials() -> None:
    made = WarmSampler(tpe(5), POINTS, [])
    made.restore([])
    assert drawn(made, [2, 4]) == POINTS
    assert len(drawn(made, [4])) == 2
    assert made.suggest(1).exhausted
    only = WarmSampler(tpe(3), POINTS, [])
    only.restore([])
    assert only.suggest(9) == Suggestion(tuple(POINTS), exhausted=True)


def test_results_of_former_runs_decide_on_what_follows_and_are_no_trials_of_this_one() -> None:
    found = []
    for results in ([], known(16), known(16, -1)):
        made = WarmSampler(tpe(4), [], results)
        made.restore([])
        found.append(drawn(made, [4]))
        assert made.total == 4
        assert len(found[-1]) == 4
    assert found[0] != found[1] != found[2] != found[0]


def test_a_known_combination_of_a_counted_space_is_not_proposed_again() -> None:
    counted = space(a=choice([1, 2]), b=choice([1, 2]))
    results = [
        Observation(TrialId(-1 - n), {"a": a, "b": b}, ObservedStatus.SUCCEEDED, {"y": 1.0})
        for n, (a, b) in enumerate([(1, 1), (1, 2), (2, 1)])
    ]
    new = {False: 0, True: 0}
    for seed in range(20):
        for warm in new:
            inner = SamplerChoice(requested="random", trials=1, seed=seed, goal=Goal("y", True)).sampler(counted)
            made = WarmSampler(inner, [], results if warm else [])
            made.restore([])
            new[warm] += drawn(made, [1]) == [{"a": 2, "b": 2}]
    assert new[False] < 12 < new[True]  # by chance: 5, and 16 of 20, as it is asked five times more at most


def test_a_restart_among_the_points_goes_on_with_the_next_one() -> None:
    made = WarmSampler(tpe(), POINTS, known(3))
    made.restore([PastSuggestion(TrialId(0), (POINTS[0],), False)])
    assert drawn(made, [9]) == POINTS[1:]


def test_a_case_is_found_with_its_constants_and_as_the_space_has_it() -> None:
    found = Places(SPACE).find({**INSIDE, "n": 2.0, "u": 64.0, "e": 10.0})
    assert found.case == {**INSIDE, "e": 10, "o": {"name": "sgd", "k": 1}}
    assert [type(found.case[name]) for name in ("n", "u", "e")] == [int, int, int]
    assert Places(SPACE).find(found.case) == found


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"lr": 2}, "lr = 2 is not in loguniform(1e-05, 1)"),
        ({"lr": "much"}, "lr = 'much' is not in"),
        ({"lr": True}, "lr = True is not in"),
        ({"lr": float("nan")}, "lr = nan is not in"),
        ({"n": 2.5}, "n = 2.5 is not in randint(1, 8)"),
        ({"n": 9}, "n = 9 is not in"),
        ({"n": 5}, "where= refuses"),
        ({"q": 0.3}, "q = 0.3 is not in quniform"),
        ({"z": "x"}, "z = 'x' is not in normal(0, 1)"),
        ({"u": 32}, "u = 32 is not in [16, 64]"),
        ({"e": 11}, "e = 11, and the space has 10"),
        ({"o": {"name": "rms"}}, "o.name = 'rms' is not in"),
        ({"o": {"name": "sgd", "k": 2}}, "o.k = 2, and the space has 1"),
        ({"o": {"name": "sgd", "j": 2}}, "'o.j' is no parameter of this case"),
        ({"o": "sgd"}, "'o.name' is missing"),
        ({"lrr": 1}, "'lrr' is no parameter of this case; did you mean 'lr'?"),
    ],
)
def test_what_is_outside_of_a_space_is_told_by_its_first_reason(change: dict[str, Any], problem: str) -> None:
    case, why = Places(SPACE).find({**INSIDE, **change})
    assert case is None
    assert why.startswith(problem)


def test_a_parameter_that_a_condition_leaves_out_must_be_left_out() -> None:
    some = space(o=choice(["sgd", "adam"]), m=when(lambda p: p["o"] == "sgd", uniform(0, 1)))
    places = Places(some)
    assert places.find({"o": "adam"}).case == {"o": "adam"}
    assert places.find({"o": "sgd", "m": 0.5}).case == {"o": "sgd", "m": 0.5}
    assert places.find({"o": "adam", "m": 0.5}).problem == "'m' is no parameter of this case"
    assert places.find({"o": "sgd"}).problem == "'m' is missing"


@pytest.mark.parametrize("listed", [zipped(a=[1, 2], b=["x", "y"]), cases([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])])
def test_a_list_has_its_own_cases_alone(listed: Any) -> None:
    places = Places(listed)
    assert places.find({"b": "y", "a": 2.0}).case == {"a": 2, "b": "y"}
    assert places.find({"a": 1, "b": "y"}).problem.startswith("{'a': 1, 'b': 'y'} is not among the")


def test_cmaes_starts_where_the_best_known_results_are() -> None:
    for x, y in ((4.0, 0.8), (0.8, 4.0)):
        away = []
        for results in (around(x, y), []):
            sampler = WarmSampler(cmaes(), [], results)
            sampler.restore([])
            first = drawn(sampler, [4, 4, 4])
            away.append(median((case["x"] - x) ** 2 + (case["y"] - y) ** 2 for case in first))
        assert away[0] < away[1] / 2, away
