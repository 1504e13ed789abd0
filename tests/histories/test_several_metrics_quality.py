"""Searches that follow several metrics, or bounds of metrics, are better than random ones."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from sparktrain.base.ids import TrialId
from sparktrain.search.named_samplers import SamplerChoice
from sparktrain.search.optuna_sampler import Goal
from sparktrain.search.sampler import Observation, ObservedStatus
from tests.unit.search.test_several_metrics import BOTH, BOUNDED, OVER, zdt1

TRIALS, SEEDS = 60, 10
MANY = 250
"""What an evolutionary sampler needs: a generation has a tenth of all trials."""


def far_corner(p: Mapping[str, Any]) -> dict[str, float]:
    """The unbounded optimum breaks the bound `g >= 0.5`."""
    return {"f": p["x"] + p["y"] + p["z"], "g": min(p["x"], p["y"])}


def run(
    sampler: str, goal: Goal, function: Callable[..., dict[str, float]], seed: int, trials: int = TRIALS
) -> list[dict[str, float]]:
    """What a search with two trials at a time has found."""
    made = SamplerChoice(requested=sampler, trials=trials, seed=seed, goal=goal).sampler(OVER, 2)
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
