"""Samplers that learn find better optima than random ones, on functions of the literature (Surjanovic & Bingham)."""

import importlib.util
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from sparktrain.config.distribution import uniform
from sparktrain.search.sampled_space import space
from sparktrain.search.space import Space
from tests.support.searches import Function, best

HARTMANN = pytest.mark.all(case="TPE against random on Hartmann-6", covered_by="TPE on Branin")

TRIALS, SEEDS = 60, 20
ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def branin(p: Mapping[str, Any]) -> float:
    x, y = p["x"], p["y"]
    return float(
        (y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6) ** 2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10
    )


def hartmann(p: Mapping[str, Any]) -> float:
    x = np.array([p[f"x{number}"] for number in range(6)])
    return -float(ALPHA @ np.exp(-(A * (x - P) ** 2).sum(axis=1)))


FUNCTIONS: dict[str, tuple[Function, Space]] = {
    "branin": (branin, space(x=uniform(-5, 10), y=uniform(0, 15))),
    "hartmann-6": (hartmann, space({f"x{number}": uniform(0, 1) for number in range(6)})),
}


def check_better(sampler: str, name: str, seeds: int = SEEDS) -> None:
    function, over = FUNCTIONS[name]
    found = [best(sampler, function, over, seed, TRIALS) for seed in range(seeds)]
    at_random = [best("random", function, over, seed, TRIALS) for seed in range(seeds)]
    p = mannwhitneyu(found, at_random, alternative="less").pvalue
    assert p < 0.01, f"p = {p:.4f}: medians {np.median(found):.3f} and {np.median(at_random):.3f}"


def test_the_functions_have_their_known_optima() -> None:
    assert branin({"x": math.pi, "y": 2.275}) == pytest.approx(0.397887, abs=1e-5)
    optimum = (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573)
    assert hartmann({f"x{number}": value for number, value in enumerate(optimum)}) == pytest.approx(-3.32237, abs=1e-4)


@pytest.mark.parametrize("name", ["branin", pytest.param("hartmann-6", marks=HARTMANN)])
def test_tpe_beats_random(name: str) -> None:
    check_better("tpe", name)


@pytest.mark.all(case="Gaussian processes on both functions, where torch is installed", covered_by="TPE on Branin")
@pytest.mark.timeout(3600)
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_gaussian_process_beats_random(name: str) -> None:
    check_better("gp", name)
