"""From the call of `run()` on a running session, and on a warm pool, to the end of the first allreduce of two members.

    python -m benchmarks.first_allreduce [--calls 3] [--rival]

With `--rival`, beside Horovod's own launcher on Spark, `horovod.spark.run`, with the same wheel, on the same session.
It did not end within two minutes where this was written, so it is not asked for by default.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import sparktrain as st
from benchmarks.machine import at_most, show
from benchmarks.session import MASTER, quiet, session

RUN_TARGET_S = 5.0
POOL_TARGET_S = 1.5
RINGS = ("horovod", "tensorflow")


def train(ctx: Any) -> dict[str, float]:
    total = ctx.allreduce(float(ctx.rank), average=False)
    return {"at": time.time(), "total": total}


def rival() -> float:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    hvd.allreduce(tf.ones([1]))
    return time.time()


def delays(calls: int, first: Callable[[], float]) -> list[float]:
    """Seconds from each call of `first` to the time of day that it returns."""
    found = []
    for _ in range(calls):
        begun = time.time()
        found.append(first() - begun)
    return found


def on_sparktrain(run: Callable[..., st.RunResult], backend: str, runs: str, calls: int) -> list[float]:
    def first() -> float:
        result = run(train, workers=2, backend=backend, **quiet(runs))
        assert result.metrics["total"] == 1.0
        return result.metrics["at"]

    return delays(calls, first)


def on_horovod(calls: int) -> list[float]:
    import horovod.spark

    return delays(calls, lambda: max(horovod.spark.run(rival, num_proc=2, use_gloo=True, verbose=0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--rival", action="store_true")
    given = parser.parse_args()
    calls = given.calls
    rows = []
    with session() as (spark, runs):
        for backend in RINGS:
            found = on_sparktrain(st.run, backend, runs, calls)
            rows.append((f"run(), {backend}", *_told(found), at_most(median(found), RUN_TARGET_S, " s")))
            with st.pool(spark, agents=2, preload=_preload(backend)) as pool:
                found = on_sparktrain(pool.run, backend, runs, calls + 1)[1:]
            rows.append((f"pool.run(), {backend}", *_told(found), at_most(median(found), POOL_TARGET_S, " s")))
        if given.rival:
            rows.append(("horovod.spark.run", *_told(on_horovod(calls)), ""))
    show(
        f"From the call to the first allreduce of two members, {calls} calls, {MASTER}",
        ("", "median", "all", "target"),
        rows,
    )


def _preload(backend: str) -> list[str]:
    return ["tensorflow", "keras", *(["horovod.tensorflow"] if backend == "horovod" else [])]


def _told(found: list[float]) -> tuple[str, str]:
    return f"{median(found):.2f} s", ", ".join(f"{each:.2f}" for each in found)


if __name__ == "__main__":
    main()
