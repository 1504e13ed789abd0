"""Where the processor time of a row goes in a pass of `to_tf`, in order and shuffled, stage by stage.

    python -m benchmarks.shuffle_budget [--rows 500000] [--passes 5]

A stage has the time of its threads, without that of the stages inside of it; the least of all passes counts, because
other processes of the machine only add to it. What the machine allows is measured in the same run: all rows through the
checksum, copied one after the other, and gathered in a random order by one index of NumPy.
"""

import argparse
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.machine import show
from benchmarks.member_data import BATCH, FLOATS, ROW_BYTES, counted, floats, images, opened, rate_of, written
from sparktrain.datasets import group_reader, permuted_rows
from sparktrain.datasets.group_file import checksum
from sparktrain.datasets.group_reader import GroupReader
from sparktrain.datasets.manifest import DataRef
from sparktrain.datasets.permuted_rows import PermutedRows
from sparktrain.datasets.row_arrays import ScatteredRows, Stack
from sparktrain.training.data import row_order
from sparktrain.training.data.feed_request import RowChunks
from sparktrain.training.data.ordered_reader import OrderedReader

STAGES: dict[str, tuple[Any, str]] = {
    "checksums of groups": (group_reader.group_file, "checksum"),
    "map groups": (GroupReader, "_group"),
    "order of the window": (row_order, "_permutation"),
    "narrow columns into this order": (permuted_rows, "_permuted"),
    "addresses of wide rows": (ScatteredRows, "__init__"),
    "gather wide rows": (ScatteredRows, "take"),
    "copy rows of narrow columns": (PermutedRows, "take"),
    "rows in order": (GroupReader, "take"),
    "stack columns": (Stack, "of"),
    "find the rows of a chunk": (OrderedReader, "read"),
    "make a chunk": (RowChunks, "__call__"),
}
OUTSIDE, ALL = "TensorFlow, and all else", "all threads"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--passes", type=int, default=5)
    options = parser.parse_args()
    show_shuffle(options.rows, options.passes)


def show_shuffle(rows: int = 500_000, passes: int = 5) -> None:
    """Print the stages of a row of 784 bytes, and of one of 20 floats that are stacked."""
    names = [f"f{i}" for i in range(FLOATS)]
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
        pixels = written(folder, "images", images(rows))
        numbers = written(folder, "floats", floats(2 * rows))
        wide = _budgets(pixels, rows, passes, feature_columns="x")
        narrow = _budgets(numbers, 2 * rows, passes, feature_columns=names, stack=True)
    _show(f"A row of {ROW_BYTES} bytes", wide, _floors(rows))
    _show(f"A row of {FLOATS} floats, stacked", narrow, {})


def _show(title: str, budgets: list[Counter[str]], floors: dict[str, float]) -> None:
    in_order, shuffled = budgets
    listed = [name for name in (*STAGES, OUTSIDE, ALL) if in_order[name] + shuffled[name] > 0]
    cells = [(name, f"{in_order[name]:.0f} ns", f"{shuffled[name]:.0f} ns") for name in listed]
    cells += [(f"the machine: {name}", f"{floor:.0f} ns", "") for name, floor in floors.items()]
    show(title, ("processor time", "in order", "shuffled"), cells)


def _budgets(stored: DataRef, rows: int, passes: int, **options: Any) -> list[Counter[str]]:
    """Nanoseconds of a row by stage, in order and shuffled."""
    least: list[Counter[str]] = [Counter(), Counter()]
    for number in range(1 + passes):  # the first one does not count
        for budget, shuffle in zip(least, (False, True), strict=True):
            spent: Counter[str] = Counter()
            feed = opened(stored).to_tf(batch_size=BATCH, label_columns="y", shuffle=shuffle, **options)
            with _timed(spent):
                rate = rate_of(rows, lambda feed=feed: counted(feed))
            spent[OUTSIDE], spent[ALL] = rate.cpu - sum(spent.values()), rate.cpu
            for name, seconds in spent.items():
                per_row = 1e9 * seconds / rows
                budget[name] = min(budget[name], per_row) if number > 1 else per_row
    return least


@contextmanager
def _timed(spent: Counter[str]) -> Iterator[None]:
    """Add the processor time of stages to `spent`."""
    inside = threading.local()
    with ExitStack() as patches:
        for name, (owner, attribute) in STAGES.items():
            timed = _stage(getattr(owner, attribute), name, spent, inside)
            patches.enter_context(patch.object(owner, attribute, timed))
        yield


def _stage(work: Callable[..., Any], name: str, spent: Counter[str], inside: threading.local) -> Callable[..., Any]:
    @wraps(work)
    def timed(*args: Any, **options: Any) -> Any:
        outer = getattr(inside, "seconds", 0.0)
        inside.seconds = 0.0
        started = time.thread_time()
        try:
            return work(*args, **options)
        finally:
            whole = time.thread_time() - started
            spent[name] += whole - inside.seconds
            inside.seconds = outer + whole

    return timed


def _floors(rows: int) -> dict[str, float]:
    """Nanoseconds of a row of 784 bytes: what each kind of access takes one thread, at best."""
    memory = np.frombuffer(np.random.default_rng(0).bytes(rows * ROW_BYTES), np.dtype((np.void, ROW_BYTES)))
    order = np.random.default_rng(0).permutation(rows)
    target = np.empty_like(memory[:BATCH])
    blocks = range(0, rows - BATCH, BATCH)

    def copy() -> None:
        for start in blocks:
            target[:] = memory[start : start + BATCH]

    def gather() -> None:
        for start in blocks:
            memory.take(order[start : start + BATCH], out=target, mode="clip")

    works = {"checksum": lambda: checksum(memory), "copy in order": copy, "gather in a random order": gather}
    return {name: min(_thread_ns(work) for _ in range(5)) / rows for name, work in works.items()}


def _thread_ns(work: Callable[[], object]) -> int:
    started = time.thread_time_ns()
    work()
    return time.thread_time_ns() - started


if __name__ == "__main__":
    main()
