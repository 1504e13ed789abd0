"""A TFCluster of two members on real Spark: its start with and without a pool, and rows a second of both calls.

`python -m benchmarks.tfcluster`. Targets: members in `map_fun` after 1.5 s on a pool, 6 s without, and 100k rows/s of
`inference`. The rows of `train` come out of Spark's Python workers: the rate of these alone is printed beside them.
"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import sparktrain as st
from benchmarks.machine import machine
from benchmarks.session import session
from sparktrain.base.clock import SystemClock
from sparktrain.tensorflowonspark import TFCluster

MASTER = "local-cluster[2,2,1536]"
"""Two executors with two slots each: one for a member, one for a feeding task."""
BATCH = 1000
WIDTH = 784


def started(args: Any, ctx: Any) -> None:
    """Record when this member is in `map_fun`."""
    Path(args, f"start-{ctx.executor_id}").write_text(str(SystemClock().wall()))


def squares(args: Any, ctx: Any) -> None:
    """One result for each row."""
    feed = ctx.get_data_feed(train_mode=False)
    while not feed.should_stop():
        if rows := feed.next_batch(BATCH):
            feed.batch_results([row * row for row in rows])


def take(args: Any, ctx: Any) -> None:
    """Take all rows, a hundred at a time."""
    feed = ctx.get_data_feed()
    while not feed.should_stop():
        feed.next_batch(100)


def start_s(sc: Any, folder: str) -> float:
    """Seconds from the call of `run` until the last member is in `map_fun`."""
    for each in Path(folder).glob("start-*"):
        each.unlink()
    started_at = SystemClock().wall()
    cluster = TFCluster.run(sc, started, folder, 2, 0, dir=f"{folder}/runs", progress=False)
    cluster.shutdown(grace_secs=60)
    return max(float(each.read_text()) for each in Path(folder).glob("start-*")) - started_at


def rates(spark: SparkSession, sc: Any, folder: str, rows: int) -> None:
    """Print the rows a second of `inference` and `train`."""
    clock, context = SystemClock(), spark.sparkContext
    asked: dict[str, Any] = {"input_mode": TFCluster.InputMode.SPARK, "dir": f"{folder}/runs", "progress": False}
    small = context.range(0, rows, 1, 8)
    cluster = TFCluster.run(sc, squares, None, 2, 0, **asked)
    cluster.inference(context.range(0, BATCH, 1, 8)).count()  # Python workers and exchanges are warm from here on
    started_at = clock.now()
    found = cluster.inference(small).sum()
    seconds = clock.now() - started_at
    assert found == (rows - 1) * rows * (2 * rows - 1) // 6
    cluster.shutdown(grace_secs=60)
    print(f"inference: {rows / seconds / 1e3:,.0f}k rows/s of {rows:,} small rows")

    large = context.range(0, rows // 10, 1, 4).map(lambda number: bytes(WIDTH))
    cluster = TFCluster.run(sc, take, None, 2, 0, **asked)
    cluster.train(context.range(0, BATCH, 1, 4).map(lambda number: bytes(WIDTH)), num_epochs=1)
    started_at = clock.now()
    cluster.train(large, num_epochs=1)
    seconds = clock.now() - started_at
    cluster.shutdown(grace_secs=60)
    started_at = clock.now()
    large.mapPartitions(lambda each: [sum(1 for _ in each)]).collect()
    alone = clock.now() - started_at
    print(
        f"train: {rows / 10 / seconds / 1e3:,.0f}k rows/s of {WIDTH} bytes; Spark alone {rows / 10 / alone / 1e3:,.0f}k"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    wanted = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(prefix="sparktrain-bench-") as folder, session(master=MASTER) as (spark, _):
        alone = [start_s(spark, folder) for _ in range(wanted.rounds)]
        print(f"start without a pool: {', '.join(f'{each:.2f}' for each in alone)} s (6)")
        with st.pool(spark, agents=2, preload=("tensorflow",)) as pool:
            start_s(pool, folder)
            warm = [start_s(pool, folder) for _ in range(wanted.rounds)]
            print(f"start on a pool: {', '.join(f'{each:.2f}' for each in warm)} s (1.5)")
            rates(spark, pool, folder, wanted.rows)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
