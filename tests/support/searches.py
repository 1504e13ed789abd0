"""A search by a sampler on a function, without a sweep around it, for tests and benchmarks."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from sparktrain.base.ids import TrialId
from sparktrain.search.named_samplers import SamplerChoice
from sparktrain.search.optuna_sampler import Goal
from sparktrain.search.sampler import Observation, ObservedStatus
from sparktrain.search.space import Space

AT_A_TIME = 4

Function = Callable[[Mapping[str, Any]], float]


def best(sampler: str, function: Function, over: Space, seed: int, trials: int) -> float:
    """The smallest value of a search with four trials at a time; infinity where none is finite."""
    made = SamplerChoice(requested=sampler, trials=trials, seed=seed, goal=Goal("y", False)).sampler(over, AT_A_TIME)
    values: list[float] = []
    running: list[tuple[int, dict[str, Any]]] = []
    asked = 0
    while len(values) < trials:
        while len(running) < AT_A_TIME and asked < trials:
            for case in made.suggest(1).cases:
                running.append((asked, case))
                asked += 1
        number, case = running.pop(len(values) % len(running))
        values.append(function(case))
        made.observe(Observation(TrialId(number), case, ObservedStatus.SUCCEEDED, {"y": values[-1]}))
    return min(filter(math.isfinite, values), default=math.inf)
