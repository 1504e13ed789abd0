"""Shuffled feeds of `data=` beside those in order, rivals on the same rows, and Parquet in place: ratios of rates.

    .venv-torch/bin/python -m benchmarks.torch_shuffle [--rounds 5] [--rows 500000] [--petastorm PYTHON]

The member is this process: it opens a dataset that a Spark task could have written, and takes one pass in batches of
256. Each pass is the first of a reader, which verifies checksums. Files are in the page cache of this machine. Rounds
alternate between all ways, after one that does not count. A ratio is that of two ways in one round. Parquet files are
decoded by the first pass on a host, and the next ones map what it has stored. torchdata is a rival where it is
installed, as by `uv pip install --no-deps torchdata`. `--petastorm`: the interpreter of an environment with petastorm,
TensorFlow and torch.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.dataset
import torch
from torch.utils.data import RandomSampler

from benchmarks.feed_rivals import petastorm_rate, why_no_petastorm, write_parquet
from benchmarks.machine import at_least, show
from benchmarks.member_data import (
    BATCH,
    FLOATS,
    OF_ORDERED,
    ROW_BYTES,
    SHUFFLED,
    Rate,
    Ways,
    cells,
    first_and_next,
    floats,
    images,
    in_both_orders,
    opened,
    rate_of,
    to_tf_rate,
    written,
)
from benchmarks.torch_feed import tensors
from sparktrain.config.data_sources import sources_of
from sparktrain.config.store_address import StoreAddress
from sparktrain.datasets.manifest import DataRef
from sparktrain.driver.data.run_data import plan_data, write_data
from sparktrain.rundir.layout import RunLayout
from sparktrain.store.url import open_store

OF_RIVALS = 1.5
OF_SCAN = 0.9
TORCH, TENSORFLOW = "784 bytes, to_torch", "784 bytes, to_tf"
TORCHDATA = "784 bytes in memory, torchdata, shuffled"
PETASTORM = {"tensorflow": "784 bytes, petastorm for TensorFlow", "torch": "784 bytes, petastorm for torch"}
FIRST, NEXT, SCAN = "Parquet, to_torch, the first pass", "Parquet, to_torch, the next pass", "Parquet, pyarrow.dataset"


@dataclass(frozen=True)
class Target:
    """The ratio of the rates of two ways, and the least that it shall be."""

    way: str
    rival: str
    least: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--petastorm", default=sys.executable)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
        ways = _ways(Path(folder), options.rows)
        notes = _add_rivals(ways, Path(folder), options.rows, options.petastorm)
        rates: dict[str, list[Rate]] = {name: [] for name in ways}
        for _ in range(1 + options.rounds):
            for name, measure in ways.items():
                rates[name].append(measure())
    rates = {name: measured[1:] for name, measured in rates.items()}
    rows = f"{options.rows:,} rows of {ROW_BYTES} bytes, {5 * options.rows:,} of {FLOATS} floats, batches of {BATCH}"
    columns = ("thousand rows/s", "median", "all", "us CPU a row")
    show(f"One pass over {rows}", columns, [cells(name, measured) for name, measured in rates.items()])
    ratios = [_compared(target, rates) for target in _targets(rates)]
    show("Ratios of rates in a round", ("ratio", "median", "all", "target"), ratios, "; ".join(notes))


def _ways(folder: Path, rows: int) -> Ways:
    pixels, numbers = images(rows), floats(5 * rows)
    stored = written(str(folder / "rows"), "images", pixels)
    table = written(str(folder / "rows"), "floats", numbers)
    write_parquet(folder / "parquet", pixels)
    files = _in_place(folder / "parquet", folder / "run")
    names = [f"f{i}" for i in range(FLOATS)]
    first, following = first_and_next(folder, lambda cache: _to_torch(files, rows, cache, feature_columns="x"))
    return {
        **in_both_orders(TORCH, partial(_to_torch, stored, rows, feature_columns="x")),
        **in_both_orders(TENSORFLOW, partial(to_tf_rate, stored, rows, feature_columns="x")),
        **in_both_orders(
            "20 floats as one tensor, to_torch", partial(_to_torch, table, 5 * rows, feature_columns=names, stack=True)
        ),
        **in_both_orders(
            "20 floats as one tensor, to_tf", partial(to_tf_rate, table, 5 * rows, feature_columns=names, stack=True)
        ),
        **in_both_orders("20 floats as a dict, to_tf", partial(to_tf_rate, table, 5 * rows, feature_columns=names)),
        FIRST: first,
        NEXT: following,
        SCAN: lambda: rate_of(rows, lambda: sum(len(y) for _, y in _scanned(folder / "parquet"))),
    }


def _to_torch(stored: DataRef, rows: int, cache: Path | None = None, **options: Any) -> Rate:
    batches = opened(stored, cache).to_torch(batch_size=BATCH, label_columns="y", **options)
    return rate_of(rows, lambda: sum(len(y) for _, y in batches))


def _in_place(files: Path, run: Path) -> DataRef:
    """Parquet files as `data=` takes them."""
    store, layout = open_store(StoreAddress(str(run))), RunLayout("run")
    plan = plan_data(sources_of({"rows": str(files)}), 60.0)
    return write_data(plan, plan.documents, store, layout, lambda _: None)["rows"]


def _scanned(folder: Path) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """What a user would write: batches of Arrow, their memory as tensors, cut."""
    for batch in pyarrow.dataset.dataset(folder).to_batches():
        x = batch["x"]
        start, end = x.offset * ROW_BYTES, (x.offset + len(x)) * ROW_BYTES
        pixels = np.frombuffer(x.buffers()[2], np.uint8)[start:end].reshape(-1, ROW_BYTES)
        tensors = torch.from_numpy(pixels.copy()), torch.from_numpy(batch["y"].to_numpy().copy())
        yield from zip(*(tensor.split(BATCH) for tensor in tensors), strict=True)


# ---- rivals


def _add_rivals(ways: Ways, folder: Path, rows: int, interpreter: str) -> list[str]:
    """Add the ways of rivals; returns why others are not there."""
    notes = []
    if find_spec("torchdata") is None:
        notes.append("torchdata is not installed")
    else:
        ways[TORCHDATA] = partial(_nodes_rate, rows)
    for framework, name in PETASTORM.items():
        if why_not := why_no_petastorm(interpreter, framework):
            notes.append(f"petastorm does not run for {framework}: {why_not}")
        else:
            ways[name] = partial(petastorm_rate, interpreter, folder / "parquet", rows, framework)
    return notes


def _nodes_rate(rows: int) -> Rate:
    """Tensors in memory by nodes of torchdata: a random order, batches of indices, and threads that index by these."""
    from torchdata import nodes

    dataset = tensors(images(rows))
    order = nodes.Batcher(nodes.SamplerWrapper(RandomSampler(dataset)), BATCH, drop_last=False)
    picked = nodes.ParallelMapper(order, dataset.__getitem__, num_workers=2, method="thread")
    loader = nodes.Loader(nodes.Prefetcher(picked, 2))
    return rate_of(rows, lambda: sum(len(y) for _, y in loader))


# ---- ratios


def _targets(rates: dict[str, list[Rate]]) -> list[Target]:
    shuffled = [name for name in rates if name.endswith(SHUFFLED) and name != TORCHDATA]
    targets = [Target(name, name.removesuffix(SHUFFLED), OF_ORDERED) for name in shuffled]
    rivals = {TORCH: (TORCHDATA, PETASTORM["torch"]), TENSORFLOW: (PETASTORM["tensorflow"],)}
    for name, others in rivals.items():
        targets += [Target(name + SHUFFLED, rival, OF_RIVALS) for rival in others if rival in rates]
    return [*targets, Target(FIRST, SCAN, OF_SCAN), Target(NEXT, SCAN, OF_SCAN)]


def _compared(target: Target, rates: dict[str, list[Rate]]) -> tuple[str, ...]:
    ratios = [rate.per_s / rival.per_s for rate, rival in zip(rates[target.way], rates[target.rival], strict=True)]
    listed = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return f"{target.way} / {target.rival}", f"{median(ratios):.2f}", listed, at_least(median(ratios), target.least)


if __name__ == "__main__":
    main()
