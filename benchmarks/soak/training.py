"""What runs in a soak: short trials that may kill what is above them, and a fit on a ring."""

import os
import signal
from pathlib import Path
from typing import Any

import sparktrain as st
from sparktrain.base.clock import pause
from tests.faults.learning import learn
from tests.support import drill

TRIALS = 12
NAME = "sweep"
DIES_S = 60.0


def short_trial(x: int, folder: str, victims: dict[str, str], ctx: Any) -> dict[str, float]:
    """Kill `victims[x]` in the first generation, or wait while FOLDER/hold exists; the end is a line in a file."""
    pause(0.05)
    if ctx.generation == 1 and (victim := victims.get(str(x))):
        os.kill(drill.pid_of(victim), signal.SIGKILL)
        pause(DIES_S)
    while Path(folder, "hold").exists():
        pause(0.02)
    with Path(folder, f"{x}-ended").open("a") as file:
        file.write(f"{ctx.generation}\n")
    return {"y": float(x * x)}


def sweep(pool: st.Pool, folder: Path, runs: str, victims: dict[str, str]) -> st.SweepResult:
    """The sweep of a round; the same call resumes it."""
    params = {"x": list(range(TRIALS)), "folder": [str(folder)], "victims": [victims]}
    return pool.sweep(
        short_trial, params, metric="y", mode="max", max_retries=5, backend="none", preload=["numpy"], dir=runs,
        name=NAME, progress=False,
    )  # fmt: skip


def ring(pool: st.Pool, folder: Path, *, kill_at: int | None, victim: str = "member") -> tuple[st.RunResult, list[Any]]:
    """A fit of two members with a memory checkpoint after each step and none in the store; its chief's weights."""
    import numpy as np

    notes = folder / "notes"
    notes.mkdir()
    params = {"folder": str(notes), "kill_at": kill_at, "hang_at": None, "victim": victim, "dropout": 0.0}
    result = pool.run(
        learn, {**params, "memory": "0.01s", "every": 1000}, workers=2, backend="tensorflow", seed=1, dir=str(folder),
        preload=["tensorflow", "keras"], progress=False,
    )  # fmt: skip
    with np.load(notes / "weights.npz") as weights:
        return result, [weights[name] for name in weights.files]
