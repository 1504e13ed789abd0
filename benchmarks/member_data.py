"""Tables as datasets in a store, opened as a member of a gang opens those of `data=`, and the rates of their feeds."""

import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from sparktrain.cluster.dataframes.frame_writer import WriteTask, write_part
from sparktrain.config.store_address import StoreAddress
from sparktrain.datasets.arrow_columns import columns_of
from sparktrain.datasets.manifest import DataRef, Manifest, MemberData
from sparktrain.datasets.values import shaped
from sparktrain.store.url import open_store
from sparktrain.training.data.open_data import OpenData
from sparktrain.training.data.position import Position
from sparktrain.training.data.training_data import TrainingData

BATCH = 256
OF_ORDERED = 0.95
"""The target of shuffled feeds: of the rate in order."""
SHUFFLED = ", shuffled"
"""The end of the name of a shuffled feed."""
ROW_BYTES = 784
FLOATS = 20
SPARK_BATCH = 10_000
"""Rows that Spark hands to a task at a time."""


class Rate(Struct, frozen=True):
    """What one pass took."""

    rows: int
    seconds: float
    cpu: float
    """Seconds of all threads, in all processes that take part."""

    @property
    def per_s(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU time of a row, in microseconds."""
        return 1e6 * self.cpu / self.rows


Ways = dict[str, Callable[[], Rate]]
"""What is measured, by name."""


def images(rows: int, seed: int = 0) -> pa.Table:
    """Rows of 784 random bytes `x` with an int32 label `y`."""
    rng = np.random.default_rng(seed)
    data = pa.py_buffer(rng.integers(0, 256, rows * ROW_BYTES, np.uint8).tobytes())
    offsets = pa.py_buffer((np.arange(rows + 1) * ROW_BYTES).astype(np.int32))
    x = pa.Array.from_buffers(pa.binary(), rows, [None, offsets, data])
    return pa.table({"x": x, "y": rng.integers(0, 10, rows).astype(np.int32)})


def floats(rows: int, seed: int = 0) -> pa.Table:
    """Rows of 20 float32 columns `f0` to `f19` with an int32 label `y`, which they determine."""
    rng = np.random.default_rng(seed)
    columns = {f"f{i}": rng.normal(size=rows).astype(np.float32) for i in range(FLOATS)}
    return pa.table({**columns, "y": (columns["f0"] + columns["f1"] > 0).astype(np.int32)})


def written(url: str, name: str, table: pa.Table) -> DataRef:
    """Write the table into the store at `url` as a Spark task would write a partition."""
    address = StoreAddress(url)
    columns = columns_of(table.schema, name)
    part = write_part(
        WriteTask(address, name, columns, name), iter(table.to_batches(max_chunksize=SPARK_BATCH)), 0, "part"
    )
    columns = shaped(columns, part.lengths, name)
    manifest = Manifest(name=name, format="groups", columns=columns, files=part.files, schema=part.schema)
    path = f"{name}/manifest.json"
    open_store(address).put_if_absent(path, manifest.encode())
    return DataRef(address, path, manifest.digest)


def opened(ref: DataRef, cache: Path | None = None) -> TrainingData:
    """The dataset in a gang of one. Nothing of it is in this process yet."""
    data = MemberData({"rows": ref}, None if cache is None else str(cache))
    return OpenData(data, 0, 1, 0, Position()).get("rows")


def rate_of(rows: int, read: Callable[[], int]) -> Rate:
    """The rate at which `read` reads; it returns the number of rows."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = read()
    made = Rate(found, time.perf_counter() - wall, time.process_time() - cpu)
    assert found == rows, f"{found} rows of {rows}"
    return made


def counted(feed: Any) -> int:
    """The rows of one pass over a `tf.data.Dataset`, which TensorFlow reads without a step of Python."""
    import tensorflow as tf

    def add(count: Any, *batch: Any) -> Any:
        return count + tf.shape(tf.nest.flatten(batch)[0], tf.int64)[0]

    return int(feed.reduce(tf.constant(0, tf.int64), add))


def to_tf_rate(ref: DataRef, rows: int, cache: Path | None = None, **options: Any) -> Rate:
    """The rate of one pass of `to_tf`, which has the labels `y`."""
    feed = opened(ref, cache).to_tf(batch_size=BATCH, label_columns="y", **options)
    return rate_of(rows, lambda: counted(feed))


def in_both_orders(name: str, measure: Callable[..., Rate]) -> Ways:
    """In order, and shuffled."""
    return {name: measure, name + SHUFFLED: partial(measure, shuffle=True)}


def first_and_next(folder: Path, measure: Callable[[Path], Rate]) -> tuple[Callable[[], Rate], Callable[[], Rate]]:
    """A pass with an empty cache of the host, in `folder`, and one with the cache of the newest of these."""
    caches = (folder / f"cache-{number}" for number in count())
    cache = Path()

    def first() -> Rate:
        nonlocal cache
        cache = next(caches)
        return measure(cache)

    return first, lambda: measure(cache)


def cells(name: str, rates: list[Rate]) -> tuple[str, str, str, str]:
    """The first cells of a row: name, median rate, all rates, CPU time."""
    each = ", ".join(f"{rate.per_s / 1e3:,.1f}" for rate in rates)
    middle, cpu = median(rate.per_s for rate in rates), median(rate.cpu_us for rate in rates)
    return name, f"{middle / 1e3:,.1f}", each, f"{cpu:.2f}"
