"""Samplers that follow several metrics, and bounds of metrics, through the contract of samplers."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from sparktrain.config.distribution import uniform
from sparktrain.config.objectives import Objective, constraints
from sparktrain.errors import SpecError
from sparktrain.ids import TrialId
from sparktrain.search.named_samplers import SamplerChoice
from sparktrain.search.optuna_sampler import Goal
from sparktrain.search.sampled_space import space
from sparktrain.search.sampler import Observation, ObservedStatus, PastSuggestion

TRIALS, SEEDS = 60, 10
MANY = 250
"""What an evolutionary sampler needs: a generation has a tenth of all trials."""
OVER = space(x=uniform(0, 1), y=uniform(0, 1), z=uniform(0, 1))
BOTH = Goal("f", False, (Objective("g", "min"),))
BOUNDED = Goal("f", False, (), constraints(["g >= 0.5"]))


def zdt1(p: Mapping[str, Any]) -> dict[str, float]:
    """A known problem of two objectives (Zitzler, Deb and Thiele, 2000): the front is y = z = 0."""
    spread = 1 + 9 * (p["y"] + p["z"]) / 2
    return {"f": p["x"], "g": spread * (1 - (p["x"] / spread) ** 0.5)}


def far_corner(p: Mapping[str, Any]) -> dict[str, float]:
    """The unbounded optimum breaks the bound `g >= 0.5`."""
    return {"f": p["x"] + p["y"] + p["z"], "g": min(p["x"], p["y"])}


def run(
    sampler: str, goal: Goal, function: Callable[..., dict[str, float]], seed: int, trials: int = TRIALS
) -> list[dict[str, float]]:
    """What a search with two trials at a time has found."""
    made = SamplerChoice(asked=sampler, trials=trials, seed=seed, goal=goal).sampler(OVER, 2)
    found: list[dict[str, float]] = []
    running: list[tuple[int, dict[str, Any]]] = []
    while len(found) < trials:
        while len(running) < 2 and len(found) + len(running) < trials:
            for case in made.suggest(1).cases:
                running.append((len(found) + len(running), case))
        number, case = running.pop(0)
        found.append(function(case))
        made.observe(Observation(TrialId(number), case, ObservedStatus.SUCCEEDED, found[-1]))
    return found


def hypervolume(found: list[dict[str, float]], worst: tuple[float, float] = (1.1, 2.0)) -> float:
    """The area that the results dominate, up to `worst`."""
    area, ceiling = 0.0, worst[1]
    for f, g in sorted((each["f"], each["g"]) for each in found):
        if f < worst[0] and g < ceiling:
            area += (worst[0] - f) * (ceiling - g)
            ceiling = g
    return area


@pytest.mark.parametrize(("sampler", "trials"), [("tpe", TRIALS), ("nsgaii", MANY)])
def test_two_metrics_are_followed_at_once(sampler: str, trials: int) -> None:
    found = [hypervolume(run(sampler, BOTH, zdt1, seed, trials)) for seed in range(SEEDS)]
    at_random = [hypervolume(run("random", BOTH, zdt1, seed, trials)) for seed in range(SEEDS)]
    p = mannwhitneyu(found, at_random, alternative="greater").pvalue
    assert p < 0.01, f"p = {p:.4f}: medians {np.median(found):.3f} and {np.median(at_random):.3f}"


def test_bounds_are_learned() -> None:
    def best(sampler: str, seed: int) -> float:
        kept = [each["f"] for each in run(sampler, BOUNDED, far_corner, seed) if each["g"] >= 0.5]
        return min(kept, default=3.0)

    found = [best("tpe", seed) for seed in range(SEEDS)]
    at_random = [best("random", seed) for seed in range(SEEDS)]
    p = mannwhitneyu(found, at_random, alternative="less").pvalue
    assert p < 0.01, f"p = {p:.4f}: medians {np.median(found):.3f} and {np.median(at_random):.3f}"


@pytest.mark.parametrize("goal", [BOTH, BOUNDED])
@pytest.mark.parametrize("sampler", ["tpe", "nsgaii", "random", "qmc"])
def test_a_restored_sampler_suggests_what_the_dead_one_would_have(sampler: str, goal: Goal) -> None:
    def made() -> Any:
        return SamplerChoice(asked=sampler, trials=30, seed=4, goal=goal).sampler(OVER, 1)

    one, history = made(), []
    for number in range(24):
        [given] = [one.suggest(1)]
        ended = Observation(TrialId(number), given.cases[0], ObservedStatus.SUCCEEDED, zdt1(given.cases[0]))
        history += [PastSuggestion(TrialId(number), given.cases, given.exhausted, given.memo), ended]
        one.observe(ended)
    other = made()
    other.restore(history)
    assert [one.suggest(1).cases for _ in range(3)] == [other.suggest(1).cases for _ in range(3)]


@pytest.mark.parametrize("metrics", [{"f": 1.0}, {"f": float("nan"), "g": 1.0}, {}])
def test_a_result_without_one_of_the_metrics_is_a_failure_to_the_sampler(metrics: dict[str, float]) -> None:
    for goal in (BOTH, BOUNDED):
        made = SamplerChoice(asked="tpe", trials=5, seed=1, goal=goal).sampler(OVER, 1)
        [case] = made.suggest(1).cases
        made.observe(Observation(TrialId(0), case, ObservedStatus.SUCCEEDED, metrics))
        assert len(made.suggest(1).cases) == 1


def test_a_pruned_trial_says_nothing_of_several_metrics() -> None:
    made = SamplerChoice(asked="tpe", trials=5, seed=1, goal=BOTH).sampler(OVER, 1)
    [case] = made.suggest(1).cases
    made.observe(Observation(TrialId(0), case, ObservedStatus.PRUNED, {"f": 1.0}, 3))
    assert len(made.suggest(1).cases) == 1


def test_cmaes_is_refused_with_those_that_can() -> None:
    with pytest.raises(SpecError, match=r"sampler='cmaes' follows one metric.*'g'.*use sampler='tpe' or 'nsgaii'"):
        SamplerChoice(asked="cmaes", trials=5, goal=BOTH).sampler(OVER)
