"""Training functions of benchmarks that measure what surrounds a trial: their module imports nothing slow."""

import os
import time

NAP_S = 0.05


def nap(trial: int) -> dict[str, float]:
    """A trial that leaves the processor to what surrounds it."""
    time.sleep(NAP_S)
    return {"pid": os.getpid()}


def empty(trial: int) -> dict[str, float]:
    """A trial that does nothing."""
    return {"pid": os.getpid()}


def sleep(seconds: float) -> dict[str, float]:
    """A trial of a given length."""
    time.sleep(seconds)
    return {"slept": seconds}
