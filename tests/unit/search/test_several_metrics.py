"""Samplers that follow several metrics, and bounds of metrics, through the contract of samplers."""

from collections.abc import Mapping
from typing import Any

import pytest

from sparktrain.base.ids import TrialId
from sparktrain.config.distribution import uniform
from sparktrain.config.objectives import Objective, constraints
from sparktrain.errors import SpecError
from sparktrain.search.named_samplers import SamplerChoice
from sparktrain.search.optuna_sampler import Goal
from sparktrain.search.sampled_space import space
from sparktrain.search.sampler import Observation, ObservedStatus, PastSuggestion

OVER = space(x=uniform(0, 1), y=uniform(0, 1), z=uniform(0, 1))
BOTH = Goal("f", False, (Objective("g", "min"),))
BOUNDED = Goal("f", False, (), constraints(["g >= 0.5"]))


def zdt1(p: Mapping[str, Any]) -> dict[str, float]:
    """A known problem of two objectives (Zitzler, Deb and Thiele, 2000): the front is y = z = 0."""
    spread = 1 + 9 * (p["y"] + p["z"]) / 2
    return {"f": p["x"], "g": spread * (1 - (p["x"] / spread) ** 0.5)}


@pytest.mark.parametrize("goal", [BOTH, BOUNDED])
@pytest.mark.parametrize("sampler", ["tpe", "nsgaii", "random", "qmc"])
def test_a_restored_sampler_suggests_what_the_dead_one_would_have(sampler: str, goal: Goal) -> None:
    def made() -> Any:
        return SamplerChoice(requested=sampler, trials=30, seed=4, goal=goal).sampler(OVER, 1)

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
        made = SamplerChoice(requested="tpe", trials=5, seed=1, goal=goal).sampler(OVER, 1)
        [case] = made.suggest(1).cases
        made.observe(Observation(TrialId(0), case, ObservedStatus.SUCCEEDED, metrics))
        assert len(made.suggest(1).cases) == 1


def test_a_pruned_trial_says_nothing_of_several_metrics() -> None:
    made = SamplerChoice(requested="tpe", trials=5, seed=1, goal=BOTH).sampler(OVER, 1)
    [case] = made.suggest(1).cases
    made.observe(Observation(TrialId(0), case, ObservedStatus.PRUNED, {"f": 1.0}, 3))
    assert len(made.suggest(1).cases) == 1


def test_cmaes_is_refused_with_those_that_can() -> None:
    with pytest.raises(SpecError, match=r"sampler='cmaes' follows one metric.*'g'.*use sampler='tpe' or 'nsgaii'"):
        SamplerChoice(requested="cmaes", trials=5, goal=BOTH).sampler(OVER)
