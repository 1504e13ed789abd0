"""The contract of samplers, by each sampler, by an object of Optuna and by a sampler of a user."""

import importlib.util

import optuna
import pytest

from sparktrain.search.sampler import Sampler
from sparktrain.search.space import grid
from sparktrain.testing.sampler_contract import SamplerContract
from tests.unit.search.test_samplers import CONDITIONS, DISCRETE, MIXED, NUMBERS, Halving, chosen


class TestRandom(SamplerContract):
    def make(self) -> Sampler:
        return chosen("random", MIXED)


class TestTpe(SamplerContract):
    def make(self) -> Sampler:
        return chosen("tpe", MIXED)


class TestTpeWithConditions(SamplerContract):
    def make(self) -> Sampler:
        return chosen("tpe", CONDITIONS)


class TestTpeOfFewCases(SamplerContract):
    def make(self) -> Sampler:
        return chosen("tpe", DISCRETE)


class TestTpeOverLists(SamplerContract):
    def make(self) -> Sampler:
        return chosen("tpe", grid(a=[1, 2, 3], b=["x", "y", None], c=[0.1, 0.2]))


class TestCmaes(SamplerContract):
    def make(self) -> Sampler:
        return chosen("cmaes", NUMBERS)


class TestQmc(SamplerContract):
    def make(self) -> Sampler:
        return chosen("qmc", MIXED)


class TestNsgaii(SamplerContract):
    def make(self) -> Sampler:
        return chosen("nsgaii", MIXED)


class TestGrid(SamplerContract):
    def make(self) -> Sampler:
        return chosen("grid", DISCRETE)


class TestGivenObject(SamplerContract):
    """An object of Optuna has a generator of its own, which a restart cannot restore."""

    restores_exactly = False

    def make(self) -> Sampler:
        return chosen(optuna.samplers.TPESampler(seed=3), MIXED)


class TestOwnSampler(SamplerContract):
    def make(self) -> Sampler:
        return chosen(Halving(), grid(x=[1]), trials=10)


@pytest.mark.all(
    case="the contract of Gaussian processes, where torch is installed: it takes 5.6 GB, and is in no lock",
    covered_by="the contract of the other samplers; what is refused without torch",
)
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
class TestGp(SamplerContract):
    cuts = 2

    def make(self) -> Sampler:
        return chosen("gp", MIXED, trials=22)
