"""What rules and samplers save in many simulated sweeps."""

import statistics

from sparktrain.config.stoppers import ASHA
from sparktrain.ops.simulation.recorded_search import searches
from tests.unit.ops.simulation.test_recorded_search import recorded, run
from tests.unit.ops.simulation.test_virtual_run import STEPS, heavy_tailed, simulated


def test_asha_saves_two_thirds_of_heavy_tailed_trials_and_keeps_the_best() -> None:
    shares, kept = [], 0
    for seed in range(40):
        curves = heavy_tailed(seed)
        whole, stopped = simulated(curves, 2), simulated(curves, 2, ASHA(most=STEPS))
        shares.append(stopped.seconds / whole.seconds)
        kept += stopped.best == whole.best
    assert statistics.fmean(shares) <= 0.36
    assert statistics.quantiles(shares, n=10)[-1] <= 0.45
    assert kept >= 36


def test_promotion_costs_no_more_than_stopping_and_keeps_the_best() -> None:
    shares, kept = [], 0
    for seed in range(25):
        curves = heavy_tailed(seed)
        whole, paused = simulated(curves, 2), simulated(curves, 2, ASHA(most=STEPS, promote=True))
        shares.append(paused.busy_s / whole.busy_s)
        kept += paused.best == whole.best
    assert statistics.fmean(shares) <= 0.36
    assert kept >= 24


def test_tpe_finds_better_trials_than_random_among_the_same_ones() -> None:
    gaps = []
    for seed in range(10):
        made = recorded(400, seed)
        means = {}
        for name in ("tpe", "random"):
            [search] = searches(made.cases, name, "loss", False, 60, 1)
            values = [each.value for each in run(made, search, 60).trials[20:]]
            means[name] = statistics.fmean(values)
        gaps.append(means["random"] - means["tpe"])
    assert sum(gap > 0 for gap in gaps) >= 9
