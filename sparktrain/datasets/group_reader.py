"""Reads rows of a dataset by their numbers: groups come from the host's cache, and are fetched ahead of their use."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparktrain.datasets import group_file
from sparktrain.datasets.columns import Column
from sparktrain.datasets.group_fetch import GroupFetcher
from sparktrain.datasets.host_cache import HostCache
from sparktrain.datasets.manifest import Manifest
from sparktrain.datasets.permuted_rows import NARROW_BYTES, PermutedRows
from sparktrain.datasets.row_arrays import Arrays, RowTarget, Stack, empty, row_bytes, run_of
from sparktrain.datasets.values import to_numpy
from sparktrain.errors import DataError

AHEAD_THREADS = 3
"""Groups that are fetched from the store at a time, beside training."""
PERMUTED_BYTES = 64 * 2**20
"""The most of columns that a process permutes as a whole for a window."""
OPEN_BYTES = 2 * 2**30
"""The most of mapped groups that a process holds open."""


class GroupReader:
    """The rows of one dataset, in one process. Any thread calls its methods; threads of its own fetch ahead."""

    def __init__(self, manifest: Manifest, fetcher: GroupFetcher, cache: Callable[[], HostCache]) -> None:
        """`cache` opens the cache at its first use: files that this host can map need none."""
        self._manifest = manifest
        self._fetcher = fetcher
        self._open_cache = cache
        self._cache: HostCache | None = None
        self._cache_lock = threading.Lock()
        self._turn = threading.Lock()
        """Feeds share the reader, and each has threads of TensorFlow. No thread holds it while it reads."""
        self._places = [
            (file, group) for file, data_file in enumerate(manifest.files) for group in range(len(data_file.groups))
        ]
        self._columns = {column.name: column for column in manifest.columns}
        groups = [group for file in manifest.files for group in file.groups]
        self.group_rows = [group.rows for group in groups]
        self.group_sizes = [group.size for group in groups]
        self._starts = np.concatenate([[0], np.cumsum(self.group_rows, dtype=np.int64)])
        self._open: OrderedDict[int, tuple[pa.RecordBatch, Arrays]] = OrderedDict()
        self._open_bytes = 0
        self._files: dict[int, pa.Buffer] = {}
        self._schema: pa.Schema | None = None
        self._ahead: dict[int, Future[pa.RecordBatch]] = {}
        self._pool: ThreadPoolExecutor | None = None

    @property
    def rows(self) -> int:
        """Number of rows of the dataset."""
        return int(self._starts[-1])

    def ahead(self, groups: Iterable[int]) -> None:
        """Fetch these groups soon, in the background, in this order, and no longer those of earlier calls.

        Does not block.
        """
        next_groups = list(groups)
        with self._turn:
            for group in self._ahead.keys() - set(next_groups):
                if self._ahead[group].cancel() or self._ahead[group].done():
                    del self._ahead[group]
            for group in next_groups:
                if group in self._ahead or group in self._open or self._fetcher.local_path(self._places[group][0]):
                    continue
                self._ahead[group] = self._threads().submit(self._read, group)

    def soon(self, work: Callable[[], object]) -> None:
        """Do this in the background, after what waits there. Does not block. Its errors are lost."""
        with self._turn:
            self._threads().submit(work)

    def open(self, groups: Sequence[int], *, at_once: bool) -> None:
        """Read these groups, or map and verify them, for `take`. Blocks. Raises as `take`.

        `at_once`: several at a time. Else one after the other: who reads rows meanwhile needs the processors more.
        """
        with self._turn:
            openings = [(group, self._threads().submit(self._group, group)) for group in groups[1:] if at_once]
        for group in groups[: 1 if at_once else None]:
            self._group(group)
        for group, opening in reversed(openings):
            # What waits in the pool is done here: its threads may all wait for groups as this one does.
            if opening.cancel():
                self._group(group)
        for _, opening in openings:
            if not opening.cancelled():
                opening.result()

    def take(self, rows: NDArray[np.int64], names: Sequence[str], stack: Stack | None = None) -> Arrays:
        """The rows with these numbers, in this order: an array of shape (rows, *shape) for each column.

        The matrix of `stack` is at `Stack.KEY`. Blocks on the store where a group is not on this host yet. Raises
        StoreError and DataError.
        """
        if stack is None:
            return self._gather_rows(rows, names)
        arrays = self._gather_rows(rows, tuple(dict.fromkeys([*names, *stack.names])))
        return {**{name: arrays[name] for name in names}, Stack.KEY: stack.of(arrays)}

    def permuted(
        self, groups: Sequence[int], order: NDArray[np.int64], names: Sequence[str], stack: Stack | None = None
    ) -> PermutedRows | None:
        """The columns of these groups, for many calls, in an order of their rows, one group after the other.

        None where a column has strings, or where the order takes too much memory. Blocks and raises as `take`.
        """
        every = tuple(dict.fromkeys([*names, *(() if stack is None else stack.names)]))
        if any(self._columns[name].strings for name in every):
            return None
        parts = [self._arrays(group, every) for group in groups]
        widths = [row_bytes(array) for array in parts[0].values()]
        if len(order) * sum(width for width in widths if width <= NARROW_BYTES) > PERMUTED_BYTES:
            return None
        return PermutedRows(parts, order, names, stack)

    def span(self, start: int, end: int, names: Sequence[str]) -> Arrays:
        """Rows `start` to `end - 1`; as `take`."""
        return self.take(np.arange(start, end, dtype=np.int64), names)

    def joined_bytes(self) -> memoryview:
        """All rows of the only column, bytes of equal lengths, one after the other, mapped from a file of this host.

        The first process of the host that needs them reads and joins all groups; read-only. Blocks on the store, or on
        that process. Raises StoreError and DataError.
        """
        # Its number is the first one that no group of the dataset has.
        batch = self._cached().get(len(self._places), self._joined_groups)
        column = batch.column(0)
        width = column.type.byte_width
        start = column.offset * width
        return memoryview(column.buffers()[1])[start : start + len(column) * width]

    def _joined_groups(self) -> pa.RecordBatch:
        parts = [self._fetcher.fetch(file, group) for file, group in self._places]
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def close(self) -> None:
        """Stop fetching ahead, and release the mapped files."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._open.clear()
        self._files.clear()

    def _gather_rows(self, rows: NDArray[np.int64], names: Sequence[str]) -> Arrays:
        """Rows of any groups, those of one group after the other: what is picked is in the processor's cache."""
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        if len(groups) and groups[0] == groups[-1] and (groups == groups[0]).all():
            return self._of_group(int(groups[0]), rows, names)
        order = np.argsort(groups.astype(np.min_scalar_type(len(self._places))), kind="stable")  # small: radix sort
        groups = groups[order]
        specs = array_specs(list(self._columns.values()), names)
        targets = {name: RowTarget(empty((len(rows), *shape), kind)) for name, (kind, shape) in specs.items()}
        sorted_rows = rows[order]
        bounds = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(rows)]
        for start, end in pairwise(bounds if len(rows) else ()):
            places = order[start:end]
            for name, part in self._of_group(int(groups[start]), sorted_rows[start:end], names).items():
                targets[name].write(part, places)
        return {name: target.array for name, target in targets.items()}

    def _of_group(self, group: int, rows: NDArray[np.int64], names: Sequence[str]) -> Arrays:
        local = rows - self._starts[group]
        run = run_of(local)
        numbers = [name for name in names if not self._columns[name].strings]
        arrays = self._arrays(group, numbers)
        columns: Arrays = {}
        for name in names:
            if name in arrays:
                columns[name] = arrays[name].take(local, axis=0) if run is None else arrays[name][run]
            else:
                values = self._group(group)[0].column(name)
                picked = values.take(pa.array(local)) if run is None else values.slice(run.start, len(local))
                columns[name] = to_numpy(picked, self._columns[name])
        return columns

    def _arrays(self, group: int, names: Sequence[str]) -> Arrays:
        """Columns of a whole group, without strings."""
        batch, arrays = self._group(group)
        for name in names:
            if name not in arrays:
                arrays[name] = to_numpy(batch.column(name), self._columns[name])
        return {name: arrays[name] for name in names}

    def _group(self, group: int) -> tuple[pa.RecordBatch, Arrays]:
        """The group and its columns as arrays, open. Who needs it first reads it, and others wait for that."""
        promise: Future[pa.RecordBatch] | None = None
        with self._turn:
            if (held := self._open.get(group)) is not None:
                self._open.move_to_end(group)
                return held
            reading = self._ahead.get(group)
            # A read that waits behind others in the pool is withdrawn: this thread needs the group now, and reads it
            # itself.
            if reading is None or reading.cancel():
                promise = reading = self._ahead[group] = Future()
                promise.set_running_or_notify_cancel()
        try:
            if promise is not None:
                _settle(promise, lambda: self._read(group))
            return self._opened(group, reading.result())
        finally:
            with self._turn:
                if self._ahead.get(group) is reading:
                    del self._ahead[group]

    def _opened(self, group: int, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Arrays]:
        with self._turn:
            if (held := self._open.get(group)) is not None:
                return held
            opened_group: tuple[pa.RecordBatch, Arrays] = (batch, {})
            self._open[group] = opened_group
            self._open_bytes += batch.nbytes
            # Arrays are views of Arrow's memory: those in use keep the memory of a group that is closed here.
            while self._open_bytes > OPEN_BYTES and len(self._open) > 1:
                _, (closed, _) = self._open.popitem(last=False)
                self._open_bytes -= closed.nbytes
            return opened_group

    def _threads(self) -> ThreadPoolExecutor:
        """The threads that work ahead. For who holds `_turn`."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(AHEAD_THREADS, "sparktrain-data")
        return self._pool

    def _read(self, group: int) -> pa.RecordBatch:
        """The group from this host, or else from its store. Any thread."""
        file, index = self._places[group]
        path = self._fetcher.local_path(file)
        if path is not None:
            return self._mapped(path, file, index)
        return self._cached().get(group, lambda: self._fetcher.fetch(file, index))

    def _cached(self) -> HostCache:
        with self._cache_lock:
            if self._cache is None:
                self._cache = self._open_cache()
            return self._cache

    def _mapped(self, path: str, file: int, index: int) -> pa.RecordBatch:
        """A group in a file that this host can map, verified at its first use in this process."""
        group = self._manifest.files[file].groups[index]
        where = f"{path}, group {index}"
        try:
            file_buffer = self._files.get(file)
            if file_buffer is None:  # two threads may both map it
                file_buffer = self._files[file] = pa.memory_map(os.fspath(path)).read_buffer()
            data = file_buffer.slice(group.offset, group.size)
        except (OSError, IndexError) as error:
            raise DataError(f"{where} cannot be read ({error}): put a copy back, or write the data again") from error
        if len(data) != group.size or (
            group.checksum is not None and group_file.checksum(memoryview(data)) != group.checksum
        ):
            raise DataError(f"{where} is corrupt: its checksum differs; put a copy back, or write the data again")
        if self._schema is None:
            self._schema = pa.ipc.read_schema(pa.py_buffer(self._manifest.schema))
        return group_file.read_group(data, self._schema)


def _settle(future: "Future[pa.RecordBatch]", work: Callable[[], pa.RecordBatch]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # the threads that wait raise it
        future.set_exception(error)


def array_specs(columns: Sequence[Column], names: Sequence[str]) -> Mapping[str, tuple[str, tuple[int, ...]]]:
    """NumPy's type and the shape of one row, by column; the type of strings of bytes is `object`."""
    schema = {column.name: column for column in columns}
    return {
        name: ("object", ()) if schema[name].strings else (schema[name].dtype, schema[name].shape or ())
        for name in names
    }
