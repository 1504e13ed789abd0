"""A simulation schedules as a coordinator with free slots does, and shows what a stopper saves."""

import heapq
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.config.stoppers import ASHA, Median, Threshold
from sparktrain.ops.simulation.curves import CurvePoint, LearningCurve, of_points
from sparktrain.ops.simulation.virtual_run import SimulatedRun, VirtualRun

STEPS = 27


def heavy_tailed(seed: int, trials: int = 40, steps: int = STEPS) -> list[LearningCurve]:
    """Losses of trials with lognormal seconds for a step, and power laws as curves."""
    draw = random.Random(seed)
    curves = []
    for _ in range(trials):
        pace, final, speed = draw.lognormvariate(0, 1), draw.betavariate(2, 5), draw.uniform(0.3, 1.2)
        noise = [draw.gauss(0, 0.01) for _ in range(steps)]
        losses = [final + (1 - final) * (step + 1) ** -speed + noise[step] for step in range(steps)]
        curves.append(of_points(CurvePoint(step, pace * (step + 1), loss) for step, loss in enumerate(losses)))
    return curves


def simulated(curves: list[LearningCurve], slots: int, *stopper: ASHA | Median | Threshold) -> SimulatedRun:
    return VirtualRun(curves, slots, "loss", "min", stopper).run()


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=40), st.integers(1, 8))
def test_without_a_stopper_each_free_slot_takes_the_next_trial(lengths: list[float], slots: int) -> None:
    free_at = [0.0] * slots
    for length in lengths:
        heapq.heapreplace(free_at, free_at[0] + length)
    run = simulated([of_points([CurvePoint(0, length, 1.0)]) for length in lengths], slots)
    assert run.seconds == pytest.approx(max(free_at))
    assert run.busy_s == pytest.approx(sum(lengths))
    assert run.pruned == 0


def test_the_same_curves_give_the_same_run() -> None:
    assert simulated(heavy_tailed(3), 5, ASHA(most=STEPS)) == simulated(heavy_tailed(3), 5, ASHA(most=STEPS))


def test_a_trial_that_is_stopped_ends_with_its_report_and_its_slot_has_the_next() -> None:
    curves = [of_points(CurvePoint(step, step + 1.0, 9.0) for step in range(5)), of_points([CurvePoint(0, 2.0, 1.0)])]
    run = simulated(curves, 1, Threshold(upper=5))
    assert [(each.status, each.started, each.ended) for each in run.trials] == [
        ("pruned", 0.0, 1.0), ("succeeded", 1.0, 3.0),
    ]  # fmt: skip
    assert run.best == 1


def test_what_a_start_and_a_stop_take_is_counted() -> None:
    curves = [of_points([CurvePoint(0, 2.0, 9.0), CurvePoint(1, 9.0, 9.0)])] * 2
    run = VirtualRun(curves, 1, "loss", "min", (Threshold(upper=5),), start_s=0.5, stop_s=0.25).run()
    assert run.seconds == pytest.approx(2 * (0.5 + 2.0 + 0.25))


def test_a_trial_without_reports_or_with_nan_is_never_the_best() -> None:
    curves = [LearningCurve((), 3.0), of_points([CurvePoint(0, 1.0, math.nan)]), of_points([CurvePoint(0, 1.0, 5.0)])]
    assert simulated(curves, 2).best == 2
    assert simulated(curves[:2], 2).best is None
