"""A program with a coordinator of TensorFlow that loses one of the workers that serve it."""

import os
import signal
import time
from pathlib import Path
from typing import Any

ROUND = 40
"""Steps between two joins."""
DEADLINE_S = 60.0


def coordinated(folder: str, ctx: Any, kill: str) -> dict[str, float]:
    """Schedule rounds of steps until both workers have done some, and once one was killed, its next process too.

    Each step adds 1 to a variable, and returns the id of the process that it ran in. `kill`: "between" two rounds, or
    "within" one. Writes the ids of each round to `folder`.
    """
    import tensorflow as tf

    strategy = ctx.strategy("parameter_server")
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0.0)

    def replica(stat: Any) -> Any:
        total.assign_add(1.0)
        return tf.strings.to_number(tf.strings.split(stat, " ")[0], tf.int32)

    @tf.function
    def step(iterator: Any) -> Any:
        return strategy.run(replica, args=(next(iterator),))

    iterator = iter(coordinator.create_per_worker_dataset(lambda: tf.data.TextLineDataset("/proc/self/stat").repeat()))
    victim, scheduled, seen = 0, 0, set[int]()
    rounds = Path(folder, f"rounds-{os.getpid()}")
    deadline = time.monotonic() + DEADLINE_S
    while len(seen) < (3 if victim else 2) and time.monotonic() < deadline:
        values = [coordinator.schedule(step, args=(iterator,)) for _ in range(ROUND)]
        coordinator.join()
        pids = {int(pid) for pid in coordinator.fetch(values)}
        scheduled, seen = scheduled + ROUND, seen | pids
        with rounds.open("a") as file:
            file.write(f"{' '.join(map(str, sorted(pids)))}\n")
        if len(seen) == 2 and not victim:
            victim = min(seen)
            scheduled += _lose(victim, coordinator, lambda: coordinator.schedule(step, args=(iterator,)), kill)
    return {"scheduled": float(scheduled), "total": float(total.numpy()), "victim": float(victim)}


def _lose(victim: int, coordinator: Any, schedule: Any, kill: str) -> int:
    """Kill the worker of process `victim`; returns how many steps ran meanwhile."""
    steps = ROUND * 10 if kill == "within" else 0
    for _ in range(steps):
        schedule()
    os.kill(victim, signal.SIGKILL)
    coordinator.join()
    return steps
