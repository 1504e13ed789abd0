"""Training functions of benchmarks that measure what surrounds a trial: their module imports nothing slow."""

import os
import time
from typing import Any

NAP_S = 0.05


def nap(trial: int) -> dict[str, float]:
    """A trial that leaves the processor to what surrounds it."""
    time.sleep(NAP_S)
    return {"pid": os.getpid()}


def empty(trial: int) -> dict[str, float]:
    """A trial that does nothing."""
    return {"pid": os.getpid()}


def sleep(seconds: float, trial: int = 0) -> dict[str, float]:
    """A trial of a given length."""
    time.sleep(seconds)
    return {"slept": seconds}


def learn(pace: float, losses: list[float], ctx: Any) -> dict[str, float]:
    """Sleeps and reports as its curve does."""
    print(time.time())
    loss = 0.0
    for step, loss in enumerate(losses):
        time.sleep(pace)
        ctx.report(step, loss=loss)
        if ctx.should_stop():
            break
    return {"loss": loss}
