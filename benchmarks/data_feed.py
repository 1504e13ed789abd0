"""Rows of `data=` into `tf.data` in one member, beside the ways of TensorFlowOnSpark and petastorm on the same rows.

    python -m benchmarks.data_feed [--rounds 5] [--rows 500000] [--petastorm PYTHON]

The member is this process: it opens a dataset that a Spark task could have written, and TensorFlow reads one pass in
batches of 256. Each pass is the first of a reader, which verifies checksums. Files are in the page cache of this
machine, also those of HDFS's DataNodes. Rounds alternate between all ways. CPU time is that of all threads, without
the daemons of HDFS. `--petastorm`: the interpreter of an environment with petastorm and TensorFlow.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import pyarrow as pa

from benchmarks.feed_rivals import petastorm_rate, printed_rate, why_no_petastorm, write_parquet
from benchmarks.machine import at_least, show
from benchmarks.member_data import (
    BATCH,
    FLOATS,
    OF_ORDERED,
    SHUFFLED,
    Rate,
    Ways,
    cells,
    counted,
    first_and_next,
    floats,
    images,
    in_both_orders,
    opened,
    rate_of,
    to_tf_rate,
    written,
)
from sparktrain.datasets.manifest import DataRef
from tests.support.hadoop import hdfs

SLOW_ROWS = 5_000
"""For the ways that take rows one by one."""
TARGETS = {
    "784 bytes, local files": 250e3,
    "784 bytes, HDFS the first time": 150e3,
    "784 bytes, HDFS, from the host's cache": 250e3,
    "20 floats as one tensor": 1e6,
}
"""Rows a second."""
PETASTORM = "784 bytes, petastorm"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--petastorm", default=sys.executable)
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="sparktrain-benchmark-")))
        cluster = stack.enter_context(hdfs(folder / "hdfs"))
        ways = _ways(folder, f"{cluster.url}/data", given.rows)
        why_not = why_no_petastorm(given.petastorm, "tensorflow")
        if not why_not:
            ways[PETASTORM] = lambda: petastorm_rate(given.petastorm, folder / "parquet", given.rows, "tensorflow")
        found: dict[str, list[Rate]] = {name: [] for name in ways}
        for _ in range(given.rounds):
            for name, measure in ways.items():
                found[name].append(measure())
    title = f"One pass over {given.rows:,} rows of 784 bytes, {5 * given.rows:,} of {FLOATS} floats, batches of {BATCH}"
    note = f"petastorm does not run with the packages below: {why_not}" if why_not else ""
    show(title, ("thousand rows/s", "median", "all", "us CPU a row", "target"), _rows(found), note)


def _ways(folder: Path, url: str, rows: int) -> Ways:
    pixels, numbers = images(rows), floats(5 * rows)
    local, remote = written(str(folder / "local"), "images", pixels), written(url, "images", pixels)
    table = written(str(folder / "local"), "floats", numbers)
    write_parquet(folder / "parquet", pixels)
    first, following = first_and_next(folder, partial(to_tf_rate, remote, rows, feature_columns="x"))
    names = [f"f{i}" for i in range(FLOATS)]
    return {
        **in_both_orders("784 bytes, local files", partial(to_tf_rate, local, rows, feature_columns="x")),
        "784 bytes, iter_batches": lambda: _iterated(local, rows),
        "784 bytes, HDFS the first time": first,
        "784 bytes, HDFS, from the host's cache": following,
        **in_both_orders(
            "20 floats as one tensor", partial(to_tf_rate, table, 5 * rows, feature_columns=names, stack=True)
        ),
        **in_both_orders("20 floats as a dict", partial(to_tf_rate, table, 5 * rows, feature_columns=names)),
        "784 bytes, from_tensor_slices of arrays": _in_memory(pixels, rows),
        "784 bytes, TensorFlowOnSpark, by rows": lambda: _tfos("rows"),
        "784 bytes, TensorFlowOnSpark, by batches": lambda: _tfos("batches"),
    }


def _iterated(ref: DataRef, rows: int) -> Rate:
    batches = opened(ref).iter_batches(batch_size=BATCH)
    return rate_of(rows, lambda: sum(len(each["y"]) for each in batches))


def _in_memory(table: pa.Table, rows: int) -> Callable[[], Rate]:
    import numpy as np
    import tensorflow as tf

    x = np.frombuffer(table["x"].combine_chunks().buffers()[2], np.uint8).reshape(rows, -1)
    y = table["y"].to_numpy()
    feed = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH).prefetch(tf.data.AUTOTUNE)
    return lambda: rate_of(rows, lambda: counted(feed))


def _tfos(way: str) -> Rate:
    return printed_rate([sys.executable, "-m", "benchmarks.tfos_feed", str(SLOW_ROWS), str(BATCH), way], SLOW_ROWS)


def _rows(found: dict[str, list[Rate]]) -> Iterator[tuple[str, ...]]:
    for name, rates in found.items():
        target = ""
        if name in TARGETS:
            target = at_least(median(each.per_s for each in rates) / 1e3, TARGETS[name] / 1e3)
        elif name.endswith(SHUFFLED):
            pairs = zip(rates, found[name.removesuffix(SHUFFLED)], strict=True)
            ratio = median(each.per_s / plain.per_s for each, plain in pairs)
            target = f"{ratio:.2f} of in order, {at_least(ratio, OF_ORDERED)}"
        yield *cells(name, rates), target


if __name__ == "__main__":
    main()
