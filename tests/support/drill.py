"""A training with an exact result that kills a part of the cluster at given steps: for tests of recovery."""

import os
import random
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sparktrain.base.clock import SystemClock, pause

STEPS = 80
EVERY = 10
"""Steps between two checkpoints."""
STEP_S = 0.02

VICTIMS = ("member", "zygote", "agent", "executor")
"""What may be killed, each the parent, by one or two, of the one before."""


@dataclass(frozen=True)
class Strike:
    """One kill: by the member of `rank`, in `generation`, after `step`."""

    generation: int
    step: int
    rank: int
    victim: str
    signal: int = signal.SIGKILL


def plan(seed: int, kills: int, size: int, victims: tuple[str, ...] = VICTIMS) -> list[Strike]:
    """A kill in each of the first generations, at random: what, by whom, and after which step."""
    rng = random.Random(seed)
    step, strikes = 0, []
    for generation in range(1, kills + 1):
        step = rng.randint(step + 1, step + max(1, (STEPS - 1 - step) // 2))
        strikes.append(Strike(generation, step, rng.randrange(size), rng.choice(victims)))
    return strikes


def expected() -> float:
    """The result of a training without a loss."""
    state = _start()
    for step in range(STEPS):
        state = _mixed(state, step)
    return _number(state)


def train(folder: str, strikes: list[dict[str, Any]], ctx: Any, collective: bool = False) -> dict[str, float]:
    """Mix a state for `STEPS` steps; the chief saves it. Writes to `folder` where each generation started and ended.

    `collective`: the members meet in each step.
    """
    mine = [Strike(**strike) for strike in strikes]
    now = next((strike for strike in mine if (strike.generation, strike.rank) == (ctx.generation, ctx.rank)), None)
    restored = ctx.checkpoint.restore()
    step, state = (restored.step, restored["state"]) if restored is not None else (0, _start())
    note(folder, ctx, f"from-{step}")
    while step < STEPS:
        pause(STEP_S)
        state = _mixed(state, step)
        step += 1
        note(folder, ctx, f"step-{step}")
        if collective:
            ctx.allreduce(1.0)  # the others wait there for a lost member
        if ctx.rank == 0 and step % EVERY == 0:
            ctx.checkpoint.save(step, state=state)
        if now is not None and step == now.step:
            victim = pid_of(now.victim)
            note(folder, ctx, f"victim-{victim}")
            os.kill(victim, now.signal)
            while True:  # until this process is ended, for its victim may take a moment to die
                pause(1.0)
    return {"value": _number(state)}


def note(folder: str, ctx: Any, what: str) -> None:
    """Write where this member runs."""
    Path(folder, f"{ctx.generation}.{ctx.rank}.{what}").write_text(repr(SystemClock().wall()))


def notes(folder: Path, what: str) -> dict[tuple[int, int], list[int]]:
    """For each generation and rank, the numbers that were noted as `what`, sorted."""
    found: dict[tuple[int, int], list[int]] = {}
    for path in folder.glob(f"*.{what}-*"):
        generation, rank, rest = path.name.split(".")
        found.setdefault((int(generation), int(rank)), []).append(int(rest.rpartition("-")[2]))
    return {key: sorted(numbers) for key, numbers in found.items()}


def _start() -> "np.ndarray[Any, Any]":
    return np.arange(1, 5, dtype=np.uint64)


def _mixed(state: "np.ndarray[Any, Any]", step: int) -> "np.ndarray[Any, Any]":
    with np.errstate(over="ignore"):
        return np.roll(state, 1) * np.uint64(6364136223846793005) + np.uint64(step)


def _number(state: "np.ndarray[Any, Any]") -> float:
    return float(state.sum(dtype=np.uint64) % np.uint64(2**40))


def pid_of(victim: str, above: int = 0) -> int:
    """Above a member come its zygote, its agent, Spark's daemon for Python, and the executor.

    `above`: how many of them the calling process is above a member; an agent, or any other task of Spark's, is 2.
    """
    pid = os.getpid()
    for _ in range({"member": 0, "zygote": 1, "agent": 2, "executor": 4}[victim] - above):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid
