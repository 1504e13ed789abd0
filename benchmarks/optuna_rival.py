"""Sweeps on this machine beside the same by Optuna, with its journal, in a warm pool of loky.

    python -m benchmarks.optuna_rival [--rounds 3] [--trials 10000] [--slots 8]

* Start: `sparktrain sweep --local` of two trivial trials, beside a program that imports Optuna and runs two.
* Halving: 40 trials with a heavy tail on two slots, which successive halving stops with rungs after 1, 3 and 9 steps.
* Crowd: so many trials of 1 ms on so many slots. It also compares what the calling process holds in memory at its end.

Trials of sparktrain have a process each; those of Optuna share the workers of loky. Optuna draws at random, as its own
sampler would look at all trials for each draw. Each figure is the best of the rounds, which alternate; the crowd is
measured once, each side in a process of its own.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from joblib.externals.loky import get_reusable_executor

import sparktrain as st
from benchmarks.local_start import TRAIN, Call
from benchmarks.machine import at_most, show
from benchmarks.session import seconds_of
from benchmarks.short_functions import learn, sleep
from benchmarks.stopping import STEPS, cases, drawn, run_on_optuna
from sparktrain.config.stoppers import ASHA

START_TARGET, HALVING_TARGET, CROWD_TARGET, MEMORY_TARGET = 0.8, 1.1, 0.8, 0.5
HALVED, HALVED_S = 40, 10.0
SLOTS = 2
WAIT_S = 3600.0
TRIAL_S = 0.001
PROGRAM = """
import optuna
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(sampler=optuna.samplers.RandomSampler())
study.optimize(lambda trial: trial.suggest_int("x", 1, 2), n_trials=2)
print(study.best_value)
"""

Rows = list[tuple[str, str, str]]


def _study(file: str, *, halves: bool = False) -> Any:
    """The study in the journal of `file`, as a worker or the caller opens it."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3) if halves else None
    storage = JournalStorage(JournalFileBackend(file))
    sampler = optuna.samplers.RandomSampler()
    return optuna.create_study(storage=storage, study_name="rival", sampler=sampler, pruner=pruner, load_if_exists=True)


def _rival_share(file: str, trials: int) -> None:
    """Run in a worker: its share of the crowd."""

    def objective(trial: Any) -> float:
        x = trial.suggest_int("x", 0, 10**6)
        time.sleep(TRIAL_S)
        return float(x)

    _study(file).optimize(objective, n_trials=trials)


def _rival_halved(file: str, case: dict[str, Any]) -> None:
    """Run in a worker: one trial, which may be stopped."""
    run_on_optuna(_study(file, halves=True), case)


def start_rows(rounds: int) -> Rows:
    """A command beside a program."""
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as name:
        folder = Path(name)
        (folder / "train.py").write_text(TRAIN)
        (folder / "program.py").write_text(PROGRAM)
        command = [sys.executable, "program.py"]
        program: Callable[[], object] = lambda: subprocess.run(  # noqa: E731
            command, cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        Call(folder, "--local")
        program()
        times = [(Call(folder, "--local").end_s, seconds_of(program)) for _ in range(rounds)]
    ours_s, rival_s = (min(values) for values in zip(*times, strict=True))
    return [
        ("two trivial trials: sparktrain sweep --local", f"{ours_s:.2f} s", ""),
        ("two trivial trials: a program with Optuna", f"{rival_s:.2f} s", ""),
        ("ratio", f"{ours_s / rival_s:.2f}", at_most(ours_s / rival_s, START_TARGET)),
    ]


def halving_rows(rounds: int) -> Rows:
    """The same curves, stopped by both."""
    curves = cases(drawn(HALVED, HALVED_S))
    times = []
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder, st.pool(st.local(slots=SLOTS)) as pool:
        workers = get_reusable_executor(max_workers=SLOTS)

        def ours(number: int) -> None:
            pool.sweep(
                learn, curves, metric="loss", mode="min", stopper=ASHA(most=STEPS, first=1), dir=folder,
                name=f"halved-{number}", progress=False,
            )  # fmt: skip

        def rival(number: int) -> None:
            file = str(Path(folder, f"rival-{number}.log"))
            _study(file, halves=True)
            wait([workers.submit(_rival_halved, file, case) for case in curves], WAIT_S)

        ours(0), rival(0)
        for number in range(1, rounds + 1):
            times.append((seconds_of(lambda n=number: ours(n)), seconds_of(lambda n=number: rival(n))))
    ours_s, rival_s = (min(values) for values in zip(*times, strict=True))
    return [
        (f"{HALVED} trials, halved: sparktrain, a process each", f"{ours_s:.2f} s", ""),
        (f"{HALVED} trials, halved: Optuna, two workers", f"{rival_s:.2f} s", ""),
        ("ratio", f"{ours_s / rival_s:.2f}", at_most(ours_s / rival_s, HALVING_TARGET)),
    ]


def crowd(side: str, folder: str, trials: int, slots: int) -> dict[str, float]:
    """Seconds and resident GiB of one side, which is this process."""
    if side == "ours":
        space = lambda count: {"seconds": [TRIAL_S], "trial": list(range(count))}  # noqa: E731
        with st.pool(st.local(slots=slots), preload=[]) as pool:
            warm: dict[str, Any] = {
                "metric": "slept",
                "mode": "max",
                "dir": folder,
                "progress": False,
                "backend": "none",
            }
            pool.sweep(sleep, space(slots), name="warm", **warm)
            kept: list[Any] = []
            seconds = seconds_of(lambda: kept.append(pool.sweep(sleep, space(trials), name="crowd", **warm)))
            assert sum(trial.status == "succeeded" for trial in kept[0].trials) == trials
    else:
        workers = get_reusable_executor(max_workers=slots)
        wait([workers.submit(_rival_share, str(Path(folder, f"warm-{n}.log")), 1) for n in range(slots)], WAIT_S)
        file = str(Path(folder, "crowd.log"))
        study = _study(file)
        share = -(-trials // slots)
        seconds = seconds_of(lambda: wait([workers.submit(_rival_share, file, share) for _ in range(slots)], WAIT_S))
        kept = study.get_trials(deepcopy=False)
        assert len(kept) >= trials
    return {"seconds": seconds, "gib": psutil.Process().memory_info().rss / 2**30}


def crowd_rows(trials: int, slots: int) -> Rows:
    """Both sides of the crowd, one after the other."""
    taken: dict[str, dict[str, float]] = {}
    for side in ("ours", "rival"):
        with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
            command = [sys.executable, "-m", "benchmarks.optuna_rival", "--side", side, "--folder", folder]
            command += ["--trials", str(trials), "--slots", str(slots)]
            ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ)
            taken[side] = json.loads(ended.stdout.splitlines()[-1])
    ours, rival = taken["ours"], taken["rival"]
    wall, memory = (ours[key] / rival[key] for key in ("seconds", "gib"))
    title = f"{trials:,} trials of 1 ms on {slots} slots"
    return [
        (f"{title}: sparktrain, a process each", f"{ours['seconds']:.1f} s, {ours['gib']:.2f} GiB", ""),
        (f"{title}: Optuna, {slots} workers", f"{rival['seconds']:.1f} s, {rival['gib']:.2f} GiB", ""),
        ("ratio of seconds", f"{wall:.2f}", at_most(wall, CROWD_TARGET)),
        ("ratio of memory", f"{memory:.2f}", at_most(memory, MEMORY_TARGET)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--side", choices=["ours", "rival"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(crowd(options.side, options.folder, options.trials, options.slots)))
        return
    rows = [*start_rows(options.rounds), *halving_rows(options.rounds), *crowd_rows(options.trials, options.slots)]
    show("sweeps beside Optuna", ("", "measured", "target"), rows)


if __name__ == "__main__":
    main()
