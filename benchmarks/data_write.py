"""A DataFrame written as a dataset of `data=`, beside Spark's own `df.write.parquet` of the same cached rows.

    python -m benchmarks.data_write [--rounds 3] [--mb 1000] [--shape '784 bytes']

Both read rows that the executors hold in memory, and write into a directory of this machine; the order alternates.
Spark writes with its defaults, which compress, and without compression.
"""

import argparse
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.machine import at_least, show
from benchmarks.session import MASTER, seconds_of, session
from sparktrain.cluster.dataframes.frame_schema import frame_columns
from sparktrain.cluster.dataframes.frame_writer import WriteTask, write_frame
from sparktrain.config.store_address import StoreAddress

TARGET = 0.8
PARTITIONS = 8
OURS, SPARK, PLAIN = "data=", "df.write.parquet", "df.write.parquet, not compressed"
ROW_BYTES = {"784 bytes": 784, "20 doubles": 160, "array<float> of 196": 784}
SCHEMAS = {
    "784 bytes": "x binary",
    "20 doubles": ", ".join(f"f{i} double" for i in range(20)),
    "array<float> of 196": "x array<float>",
}
MEMORY = {"spark.executor.memory": "2048m"}
"""Enough to cache 1 GB in two executors."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--shape", choices=list(ROW_BYTES), action="append", help="all by default")
    given = parser.parse_args()
    rows = []
    with session(MEMORY) as (spark, runs):
        for shape in given.shape or ROW_BYTES:
            frame = _cached(spark, shape, given.mb)
            found = _rounds(frame, Path(runs), given.rounds)
            frame.unpersist(blocking=True)
            rows += _rows(shape, given.mb, found)
    title = f"{given.mb} MB written by {PARTITIONS} tasks, {given.rounds} rounds, {MASTER}"
    show(title, ("MB/s", "median", "all", "of Spark's own", "target"), rows)


def _cached(spark: SparkSession, shape: str, mb: int) -> DataFrame:
    """Random rows, in the memory of the executors."""
    width = ROW_BYTES[shape]

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            count = batch.num_rows
            rng = np.random.default_rng(batch.column(0)[0].as_py())
            if shape == "20 doubles":
                yield pa.RecordBatch.from_pydict({f"f{i}": rng.normal(size=count) for i in range(20)})
            elif shape == "784 bytes":
                data = rng.integers(0, 256, (count, width), np.uint8)
                yield pa.RecordBatch.from_pydict({"x": pa.array([row.tobytes() for row in data], pa.binary())})
            else:
                values = rng.normal(size=count * width // 4).astype(np.float32)
                offsets = np.arange(count + 1, dtype=np.int32) * (width // 4)
                yield pa.RecordBatch.from_pydict({"x": pa.ListArray.from_arrays(offsets, values)})

    frame = spark.range(0, mb * 10**6 // width, 1, PARTITIONS).mapInArrow(make, SCHEMAS[shape]).cache()
    frame.write.format("noop").mode("overwrite").save()
    return frame


def _rounds(frame: DataFrame, folder: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of each way; each writes once before, to warm up."""
    ways = {OURS: _ours, SPARK: _spark, PLAIN: _plain}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name in sorted(ways, reverse=turn % 2 == 0):
            target = folder / uuid4().hex
            seconds = seconds_of(_job(ways[name], frame, target))
            shutil.rmtree(target)
            if turn:
                found[name].append(seconds)
    return found


def _job(way: Callable[[DataFrame, Path], None], frame: DataFrame, target: Path) -> Callable[[], None]:
    return lambda: way(frame, target)


def _ours(frame: DataFrame, target: Path) -> None:
    columns = frame_columns(frame, "data")
    parts = write_frame(frame, WriteTask(StoreAddress(str(target)), "data", columns, "data"))
    assert sum(file.rows for part in parts for file in part.files) > 0


def _spark(frame: DataFrame, target: Path) -> None:
    frame.write.parquet(str(target))


def _plain(frame: DataFrame, target: Path) -> None:
    frame.write.option("compression", "none").parquet(str(target))


def _rows(shape: str, mb: int, found: dict[str, list[float]]) -> Iterator[tuple[str, ...]]:
    rates = {name: [mb / each for each in seconds] for name, seconds in found.items()}
    ratio = median(own / rival for own, rival in zip(rates[OURS], rates[SPARK], strict=True))
    for name, each in rates.items():
        all_of_them = ", ".join(f"{rate:.0f}" for rate in each)
        compared = (f"{ratio:.2f}", at_least(ratio, TARGET)) if name == OURS else ("", "")
        yield f"{shape}, {name}", f"{median(each):.0f}", all_of_them, *compared


if __name__ == "__main__":
    main()
