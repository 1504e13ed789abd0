"""A training that continues until the test ends it, with a result that shows whether a step is missing."""

from pathlib import Path
from typing import Any

import numpy as np

from sparktrain.base.clock import pause

EVERY = 10
"""Steps between two checkpoints."""
STEP_S = 0.02
LIMIT = 20_000


def mixed(state: "np.ndarray[Any, Any]", step: int) -> "np.ndarray[Any, Any]":
    """The state after `step`: it depends on every step before."""
    return (state * 31 + step) % 1_000_003


def expected(steps: int) -> float:
    """The result of so many steps that nothing disturbs."""
    state = np.arange(4)
    for step in range(steps):
        state = mixed(state, step)
    return float(state.sum())


def endure(folder: str, ctx: Any) -> dict[str, float]:
    """Mix a state, save it now and then; the chief writes its steps to `folder`/step, until `folder`/enough exists."""
    restored = ctx.checkpoint.restore()
    step, state = (restored.step, restored["state"]) if restored is not None else (0, np.arange(4))
    if ctx.rank == 0:
        Path(folder, f"from-{ctx.generation}").write_text(str(step))
    while step < LIMIT and not Path(folder, "enough").exists():
        pause(STEP_S)
        state = mixed(state, step)
        step += 1
        if ctx.rank == 0:
            Path(folder, "step").write_text(f"{step:08d}")
            if step % EVERY == 0:
                ctx.checkpoint.save(step, state=state)
    return {"steps": float(step), "sum": float(state.sum())}
