"""Rules that stop trials: how far from the best that their decisions allow?

    python -m benchmarks.stopping [--trials 40] [--seconds 25] [--virtual 10000]

Trials have lognormal seconds for a step and power laws as learning curves; all of them together take `--seconds` on two
slots. Ideal: the same decisions in virtual time, where a slot has its next trial at once. The rivals are
Optuna's successive halving in threads of one process, against rungs as early as its own, and the same sweep without a
stopper.
"""

import argparse
import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import sparktrain as st
from benchmarks.machine import at_most, show
from benchmarks.session import MASTER, SLOTS, quiet, seconds_of, session
from benchmarks.short_functions import learn
from sparktrain.config.stoppers import ASHA, AnyStopRule
from sparktrain.ops.simulation.curves import CurvePoint, LearningCurve, of_points
from sparktrain.ops.simulation.virtual_run import SimulatedRun, VirtualRun

SEED, STEPS = 7, 27
IDEAL, STOP_S, OF_RIVAL, VIRTUAL_S = 1.15, 0.3, 1.10, 10.0
"""Limits: of the ideal, from a report to the next trial's first line, of Optuna, and of the virtual trials."""


def drawn(trials: int, whole_s: float) -> list[LearningCurve]:
    """The curves; all steps take `whole_s` on all slots."""
    draw = random.Random(SEED)
    found = []
    for _ in range(trials):
        pace, final, speed = draw.lognormvariate(0, 1), draw.betavariate(2, 5), draw.uniform(0.3, 1.2)
        found.append([(pace * (step + 1), final + (1 - final) * (step + 2) ** -speed) for step in range(STEPS)])
    scale = SLOTS * whole_s / sum(curve[-1][0] for curve in found)
    return [of_points(CurvePoint(step, scale * at, loss) for step, (at, loss) in enumerate(curve)) for curve in found]


def simulated(curves: list[LearningCurve], slots: int, *stopper: AnyStopRule) -> SimulatedRun:
    """The same in virtual time."""
    return VirtualRun(curves, slots, "loss", "min", stopper).run()


def cases(curves: list[LearningCurve]) -> list[dict[str, Any]]:
    """The parameters of the trials."""
    return [{"pace": curve.points[0].seconds, "losses": [each.value for each in curve.points]} for curve in curves]


def measured(
    pool: st.Pool, runs: str, curves: list[LearningCurve], rule: AnyStopRule | None
) -> tuple[float, list[float]]:
    """Seconds of a sweep, and for each trial that was stopped those until the first line of the next one."""
    made: list[Any] = []
    seconds = seconds_of(
        lambda: made.append(pool.sweep(learn, cases(curves), metric="loss", mode="min", stopper=rule, **quiet(runs)))
    )
    [result] = made
    starts = sorted(float(trial.read_log().split()[0]) for trial in result.trials)
    gaps = []
    for trial in result.trials:
        if trial.status == "pruned":
            reported = trial.history["time"].iloc[-1].timestamp()
            gaps += [start - reported for start in starts if start > reported][:1]
    return seconds, gaps


def on_optuna(curves: list[LearningCurve]) -> float | None:
    """Seconds with Optuna's successive halving, rungs after 1, 3 and 9 steps; None where it is not installed.

    Its trials share this process: threads suffice, because trials sleep.
    """
    if find_spec("optuna") is None:
        return None
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3))

    with ThreadPoolExecutor(SLOTS) as threads:
        return seconds_of(lambda: list(threads.map(lambda case: run_on_optuna(study, case), cases(curves))))


def run_on_optuna(study: Any, case: dict[str, Any]) -> None:
    """Run one trial of a study of Optuna, which its pruner may stop."""
    import optuna

    trial, loss = study.ask(), 0.0
    for step, loss in enumerate(case["losses"]):
        time.sleep(case["pace"])
        trial.report(loss, step)
        if trial.should_prune():
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return
    study.tell(trial, loss)


def rows(trials: int, seconds: float, virtual: int) -> list[tuple[str, str, str, str]]:
    """The rows of this benchmark's table: name, seconds, their ratio to the ideal, target."""
    curves, rule = drawn(trials, seconds), ASHA(most=STEPS)
    early, rival = ASHA(most=STEPS, first=1), on_optuna(curves)
    best, best_early = simulated(curves, SLOTS, rule).seconds, simulated(curves, SLOTS, early).seconds
    with session() as (spark, runs), st.pool(spark, agents=SLOTS) as pool:
        pool.sweep(learn, [{"pace": 0.0, "losses": [1.0]}] * SLOTS, metric="loss", mode="min", **quiet(runs))
        ours, gaps = measured(pool, runs, curves, rule)
        soon, _ = measured(pool, runs, curves, early)
        whole, _ = measured(pool, runs, curves, None)
    took = seconds_of(lambda: simulated(drawn(virtual, 1e6), 64, rule))
    gap = statistics.median(gaps)
    optuna = ("", "") if rival is None else (f"{rival:.2f}", at_most(soon / rival, OF_RIVAL))
    return [
        (f"pool.sweep(), {rule}", f"{ours:.2f}", f"{ours / best:.3f}", at_most(ours / best, IDEAL)),
        ("ideal of these rungs", f"{best:.2f}", "1", ""),
        (f"pool.sweep(), {early}", f"{soon:.2f}", f"{soon / best_early:.3f}", optuna[1]),
        ("ideal of these rungs", f"{best_early:.2f}", "1", ""),
        ("rival: Optuna's successive halving, threads of one process", optuna[0] or "not installed", "", ""),
        ("pool.sweep(), no stopper", f"{whole:.2f}", "", ""),
        ("report to the next trial's first line, median", f"{gap:.3f}", "", at_most(gap, STOP_S)),
        (f"{virtual:,} virtual trials on 64 slots", f"{took:.1f}", "", at_most(took, VIRTUAL_S)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--virtual", type=int, default=10_000)
    given = parser.parse_args()
    title = f"{given.trials} trials of {STEPS} steps, {given.seconds:g} s on all of {SLOTS} slots, on {MASTER}"
    show(title, ("", "seconds", "of the ideal", "target"), rows(given.trials, given.seconds, given.virtual))


if __name__ == "__main__":
    main()
