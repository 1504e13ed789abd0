"""Decisions of successive halving on random histories, against an independent implementation of its definition."""

import math
import random

from sparktrain.config.stoppers import ASHA
from sparktrain.state.records import RungReached
from tests.unit.state.pruning.test_rules import Trials


def naive_asha(eta: int, rungs: list[int], history: list[tuple[int, int, float]]) -> list[tuple[int, int]]:
    """Successive halving by its definition, with lists that are searched whole: (trial, rung) of each stop."""
    seen: dict[int, list[tuple[int, float]]] = {rung: [] for rung in rungs}
    stops: list[tuple[int, int]] = []
    for trial, progress, value in history:
        if trial in {each for each, _ in stops}:
            continue
        for rung in rungs:
            if progress < rung or trial in [each for each, _ in seen[rung]]:
                continue
            seen[rung].append((trial, value))
            n = len(seen[rung])
            rank = 1 + sum(1 for _, other in seen[rung] if other < value)  # ties share the better place
            places = max(1, math.floor(n / eta))
            if math.isinf(value) or (n >= eta and rank > places):
                stops.append((trial, rung))
                break
    return stops


def test_asha_decides_as_its_definition_on_ten_thousand_histories() -> None:
    stopped = 0
    for seed in range(10_000):
        draw = random.Random(seed)
        eta, most = draw.choice([2, 3, 4]), draw.randint(2, 30)
        options = ASHA(eta=eta, most=most, first=draw.choice([None, 1, max(1, most // 3)]) if most > 3 else None)
        trials, steps = Trials(options), dict.fromkeys(range(draw.randint(1, 12)), -1)
        history = []
        for _ in range(draw.randint(1, 40)):
            trial = draw.choice(list(steps))
            steps[trial] += draw.randint(1, 4)  # steps are skipped
            value = draw.choice([math.inf, *(draw.randint(0, 9) / 3 for _ in range(8))])  # ties are frequent
            history.append((trial, steps[trial] + 1, value))
        found, over = [], set[int]()
        for trial, progress, value in history:
            if trial not in over and trials.report(trial, progress - 1, math.nan if math.isinf(value) else value):
                over.add(trial)
                [last] = trials.records[-1:]
                assert isinstance(last, RungReached)
                found.append((trial, last.rung))
        assert found == naive_asha(eta, list(options.rungs(most)), history)
        stopped += len(found)
    assert stopped > 10_000
