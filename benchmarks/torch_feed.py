"""Rows of `data=` into tensors of PyTorch in one member, beside a DataLoader of the same rows in memory.

    .venv-torch/bin/python -m benchmarks.torch_feed [--rounds 5] [--rows 500000]

The member is this process: it opens a dataset that a Spark task could have written, and takes one pass in batches of
256. Each pass of `to_torch` is the first of a reader, which verifies checksums. Files are in the page cache of this
machine. Rounds alternate between all ways. CPU time is that of all threads.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset

from benchmarks.machine import at_least, show
from benchmarks.member_data import BATCH, OF_ORDERED, Rate, cells, images, opened, rate_of, written
from sparktrain.datasets.manifest import DataRef

SLOW_ROWS = 50_000
"""For the loader that takes rows one by one."""
TARGET = 1e6
ORDERED = "to_torch"
SHUFFLED = "to_torch, shuffled"

Ways = dict[str, Callable[[], Rate]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=500_000)
    given = parser.parse_args()
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
        ways = _ways(Path(folder), given.rows)
        rates: dict[str, list[Rate]] = {name: [] for name in ways}
        for _ in range(given.rounds):
            for name, measure in ways.items():
                rates[name].append(measure())
    ratio = median(
        shuffled.per_s / ordered.per_s for shuffled, ordered in zip(rates[SHUFFLED], rates[ORDERED], strict=True)
    )
    targets = {
        ORDERED: at_least(median(rate.per_s for rate in rates[ORDERED]) / 1e3, TARGET / 1e3),
        SHUFFLED: f"{ratio:.2f} of in order, {at_least(ratio, OF_ORDERED)}",
    }
    rows = [(*cells(name, measured), targets.get(name, "")) for name, measured in rates.items()]
    title = f"One pass over {given.rows:,} rows of 784 bytes, batches of {BATCH}, torch {torch.__version__}"
    show(title, ("thousand rows/s", "median", "all", "us CPU a row", "target"), rows)


def _ways(folder: Path, rows: int) -> Ways:
    table = images(rows)
    stored = written(str(folder / "rows"), "images", table)
    memory = tensors(table)
    few = TensorDataset(*(tensor[:SLOW_ROWS] for tensor in memory.tensors))
    return {
        ORDERED: lambda: _fed(stored, rows, shuffle=False),
        SHUFFLED: lambda: _fed(stored, rows, shuffle=True),
        "tensors in memory, indexed by batches": lambda: _indexed(memory, SequentialSampler(memory)),
        "tensors in memory, indexed by batches, shuffled": lambda: _indexed(memory, RandomSampler(memory)),
        "DataLoader of a TensorDataset in memory": lambda: _counted(DataLoader(few, BATCH), len(few)),
    }


def _fed(stored: DataRef, rows: int, *, shuffle: bool) -> Rate:
    options: dict[str, Any] = {"feature_columns": "x", "label_columns": "y", "shuffle": shuffle}
    return _counted(opened(stored).to_torch(batch_size=BATCH, **options), rows)


def _indexed(dataset: TensorDataset, sampler: Any) -> Rate:
    """The fastest way of torch: one index operation for each batch."""
    batches = BatchSampler(sampler, BATCH, drop_last=False)
    return _counted(DataLoader(dataset, sampler=batches, batch_size=None), len(dataset))


def _counted(batches: Any, rows: int) -> Rate:
    return rate_of(rows, lambda: sum(len(y) for _, y in batches))


def tensors(table: pa.Table) -> TensorDataset:
    """The rows of `images` in memory."""
    x = np.frombuffer(table["x"].combine_chunks().buffers()[2], np.uint8).reshape(table.num_rows, -1)
    return TensorDataset(torch.from_numpy(x.copy()), torch.from_numpy(table["y"].to_numpy().copy()))


if __name__ == "__main__":
    main()
