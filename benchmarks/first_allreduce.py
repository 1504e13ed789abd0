"""From the call of `run()` on a running session, and on a warm pool, to the end of the first allreduce of two members.

    python -m benchmarks.first_allreduce [--calls 3] [--backends horovod tensorflow torch]

By default for all backends that have their library here. Horovod stands beside its own launcher on Spark,
`horovod.spark.run`, with the same wheel, on a running session of its own. torch stands beside TorchDistributor of
PySpark, on the same session: its barrier stage starts torchrun on each executor, which starts the member.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median
from typing import Any

from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession

import sparktrain as st
from benchmarks.machine import at_most, show
from benchmarks.session import MASTER, quiet, session

RUN_TARGET_S = 5.0
RIVAL_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Connection:
    """What connects the members."""

    preload: tuple[str, ...]
    """What the zygotes of a pool import; the last one must be installed here."""
    pool_target_s: float


BACKENDS = {
    "horovod": Connection(("tensorflow", "keras", "horovod.tensorflow"), 1.5),
    "tensorflow": Connection(("keras", "tensorflow"), 1.5),
    "torch": Connection(("torch",), 1.0),
    "jax": Connection(("jax",), 1.0),
}


def train(ctx: Any) -> dict[str, float]:
    total = ctx.allreduce(float(ctx.rank), average=False)
    return {"at": time.time(), "total": total}


def delays(calls: int, first: Callable[[], float]) -> list[float]:
    """Seconds from each call of `first` to the time of day that it returns."""
    found = []
    for _ in range(calls):
        started_at = time.time()
        found.append(first() - started_at)
    return found


def on_sparktrain(run: Callable[..., st.RunResult], backend: str, runs: str, calls: int) -> list[float]:
    def first() -> float:
        result = run(train, workers=2, backend=backend, **quiet(runs))
        assert result.metrics["total"] == 1.0
        return result.metrics["at"]

    return delays(calls, first)


def on_horovod(calls: int) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.horovod_spark", str(calls)]
    output = subprocess.run(command, capture_output=True, text=True, timeout=RIVAL_TIMEOUT_S, check=True).stdout
    return [float(each) for each in json.loads(output.splitlines()[-1])]


def on_distributor(calls: int) -> list[float]:
    """With TorchDistributor, on the executors of the active session."""

    def member() -> float:
        import torch

        torch.distributed.init_process_group("gloo")
        total = torch.tensor([float(torch.distributed.get_rank())])
        torch.distributed.all_reduce(total)
        assert total.item() == 1.0
        return time.time()

    distributor = TorchDistributor(num_processes=2, local_mode=False, use_gpu=False)
    return delays(calls, lambda: float(distributor.run(member)))


def is_installed(backend: str) -> bool:
    module = BACKENDS[backend].preload[-1]
    return find_spec(module.partition(".")[0]) is not None


def rows_of(backend: str, spark: SparkSession, runs: str, calls: int) -> list[tuple[str, ...]]:
    """The rows of one backend: without a pool, on a pool, and its rival."""
    connection = BACKENDS[backend]
    cold = on_sparktrain(st.run, backend, runs, calls)
    with st.pool(spark, agents=2, preload=list(connection.preload)) as pool:
        warm = on_sparktrain(pool.run, backend, runs, calls + 1)[1:]
    rows = [
        (f"run(), {backend}", *_cells(cold), at_most(median(cold), RUN_TARGET_S, " s")),
        (f"pool.run(), {backend}", *_cells(warm), at_most(median(warm), connection.pool_target_s, " s")),
    ]
    if backend == "horovod":
        rows.append(("horovod.spark.run, local[2]", *_cells(on_horovod(calls)), ""))
    if backend == "torch":
        rows.append(("TorchDistributor, the same session", *_cells(on_distributor(calls)), ""))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=[*filter(is_installed, BACKENDS)])
    arguments = parser.parse_args()
    with session() as (spark, runs):
        rows = [row for backend in arguments.backends for row in rows_of(backend, spark, runs, arguments.calls)]
    show(
        f"From the call to the first allreduce of two members, {arguments.calls} calls, {MASTER}",
        ("", "median", "all", "target"),
        rows,
    )


def _cells(found: list[float]) -> tuple[str, str]:
    return f"{median(found):.2f} s", ", ".join(f"{each:.2f}" for each in found)


if __name__ == "__main__":
    main()
