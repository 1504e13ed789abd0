"""A training that sends SIGTERM to its agent or its executor, and continues meanwhile."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

from sparktrain.base.clock import pause
from tests.support.drill import note, pid_of

STEPS = 400
STEP_S = 0.02
EVERY = 10
"""Steps between two checkpoints."""
AT = 17
"""The step after which the signal is sent."""


def train(folder: str, victim: str, ctx: Any, number: int = 0, signum: int = signal.SIGTERM) -> dict[str, float]:
    """Count steps, which the chief saves. In the first generation of trial 0, rank 1, or the only one, sends
    a signal to its `victim`; the next generation ends soon."""
    restored = ctx.checkpoint.restore()
    first = step = restored.step if restored is not None else 0
    note(folder, ctx, f"from-{number}-{first}")
    last = STEPS if ctx.generation == 1 and number == 0 else first + EVERY
    while step < last:
        pause(STEP_S)
        step += 1
        if ctx.rank == 0 and step % EVERY == 0:
            ctx.checkpoint.save(step, count=np.int64(step))
        if number == 0 and ctx.generation == 1 and ctx.rank == ctx.size - 1 and step == AT:
            Path(folder, "pids").write_text(f"{pid_of('agent')} {os.getpid()}")
            if victim != "none":
                os.kill(pid_of(victim), signum)
    return {"steps": step}
