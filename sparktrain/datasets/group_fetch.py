"""Fetches groups of rows from the store: one range read each, checked, as plain Arrow batches."""

import threading
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from sparktrain.datasets.columns import Column, ColumnKind
from sparktrain.datasets.file_formats import (
    CorruptFileError,
    GroupedFile,
    check_footer,
    check_unchanged,
    read_exactly,
)
from sparktrain.datasets.file_paths import folder_array, is_of_folders
from sparktrain.datasets.group_file import checksum, read_group
from sparktrain.datasets.manifest import DataFile, FileFormat, Group, Manifest
from sparktrain.datasets.values import Lengths, check_values, plain_batch
from sparktrain.errors import DataError
from sparktrain.store.base import Store
from sparktrain.store.localfs import LocalStore

_OPEN_FILES = 32
"""Of how many files the footers stay in memory."""


class CorruptGroupError(DataError):
    """A group of a file is corrupt; the message names both, and the next step."""


class GroupFetcher:
    """Fetches groups of one dataset. Any thread may call it; calls block on the store."""

    def __init__(self, manifest: Manifest, store: Store) -> None:
        """`store` is that of `manifest.root`, or of the run where that is empty."""
        self._manifest = manifest
        self._store = store
        self._schema = pa.ipc.read_schema(pa.py_buffer(manifest.schema)) if manifest.schema else None
        self._names = [column.name for column in manifest.columns if not is_of_folders(column)]
        self._opened = lru_cache(_OPEN_FILES)(self._open)
        self._identities: dict[int, str] = {}
        """The file in the place of each path when it was first read."""
        self._turn = threading.Lock()

    def fetch(self, file_index: int, group_index: int) -> pa.RecordBatch:
        """The rows of a group in the form of `values.plain_batch`, which fit the columns of the manifest.

        Raises DataError, with file and group: for corrupt bytes, a file that was replaced since the plan, nulls, and
        rows of another shape than the column has. Raises OSError when the store fails.
        """
        try:
            batch = self._read(file_index, group_index)
        except (DataError, FileNotFoundError):
            self._check_unchanged(file_index)  # what was read of another file explains less
            raise
        self._check_unchanged(file_index)
        subject = self.subject(file_index, group_index)
        batch = plain_batch(batch, self._manifest.columns, self._manifest.pad, subject)
        _check_shapes(self._manifest.columns, check_values(batch, self._manifest.columns, subject), subject)
        return batch

    def _read(self, file_index: int, group_index: int) -> pa.RecordBatch:
        """The rows of a group as its file has them. Raises as `fetch`, and FileNotFoundError."""
        file = self._manifest.files[file_index]
        group = file.groups[group_index]
        try:
            if self._manifest.format == "groups":
                batch = self._read_written_group(file, group)
            else:
                batch = self._with_folders(self._opened(file_index).read(group, self._names), file)
            if batch.num_rows != group.rows:
                raise CorruptFileError(f"it has {batch.num_rows:,} rows, and {group.rows:,} were announced")
        except CorruptFileError as error:
            raise CorruptGroupError(self._corrupt(file_index, group_index, str(error))) from error
        except DataError as error:
            raise DataError(f"{self.subject(file_index, group_index)}: {error}") from error
        return batch

    def local_path(self, file_index: int) -> str | None:
        """The path of a file of groups on this host, for readers that map it; None where there is none."""
        if self._manifest.format != "groups" or not isinstance(self._store, LocalStore):
            return None
        return self._store.where(self._manifest.files[file_index].path)

    def subject(self, file_index: int, group_index: int) -> str:
        """The data, the file and the group, for messages."""
        file = self._manifest.files[file_index]
        number = group_index
        if self._manifest.format != "groups":
            source_number = self._number(file_index, file.groups[group_index])
            number = group_index if source_number is None else source_number
        origin = f" ({file.origin})" if file.origin else ""
        return f"data[{self._manifest.name!r}], {self._store.where(file.path)}{origin}, row group {number}"

    def _number(self, file_index: int, group: Group) -> int | None:
        try:
            return self._opened(file_index).number(group)
        except DataError:  # it is in the way of a message about the file already
            return None

    def _corrupt(self, file_index: int, group_index: int, why: str) -> str:
        step = "put a good copy back"
        if self._manifest.format != "groups" and self._manifest.on_error == "raise":
            step += ", or pass on_error='skip'"
        return f"{self.subject(file_index, group_index)}: the bytes are corrupt: {why}; {step}"

    def _read_written_group(self, file: DataFile, group: Group) -> pa.RecordBatch:
        """A group that sparktrain has written."""
        data = read_exactly(self._store, file.path, group.offset, group.size)
        if group.checksum is not None and (crc := checksum(data)) != group.checksum:
            raise CorruptFileError(f"their CRC-32C is {crc:08x}, and {group.checksum:08x} was written")
        try:
            return read_group(pa.py_buffer(data), self._schema)
        except DataError as error:
            raise CorruptFileError(str(error)) from error

    def _open(self, file_index: int) -> GroupedFile:
        file = self._manifest.files[file_index]
        rows = opened(self._store, file.path, file.size, self._manifest.format, self._manifest)
        check_footer(self._store, file, rows)
        return rows

    def _check_unchanged(self, file_index: int) -> None:
        """Check after each read that the file of the user is still that of the plan: by one request to the store.

        What was read before is then of this file, for no writer gives a file its earlier version back.
        """
        if self._manifest.format == "groups":  # each has a checksum
            return
        # After each read: a check once per process mixed rows of a new file with old ones, and they got into the host's
        # cache.
        info = check_unchanged(self._store, self._manifest.files[file_index])
        with self._turn:
            first = self._identities.setdefault(file_index, info.identity)
        if info.identity != first:  # a copy with the same size and time, of the same content perhaps
            self._open(file_index)
            with self._turn:
                self._identities[file_index] = info.identity

    def _with_folders(self, batch: pa.RecordBatch, file: DataFile) -> pa.RecordBatch:
        """`batch` with the columns that the names of folders give."""
        for column in self._manifest.columns:
            if is_of_folders(column):
                batch = batch.append_column(column.name, folder_array(file.path, column, batch.num_rows))
        return batch


def opened(store: Store, path: str, size: int, format: FileFormat, manifest: Manifest) -> GroupedFile:
    """Open a file of the user by its format: see `GroupedFile`. Raises CorruptFileError; blocks on the store.

    `manifest` has the compression and the features of TFRecord files.
    """
    if format == "parquet":
        from sparktrain.datasets.parquet_files import open_parquet  # most datasets need one of these libraries

        return open_parquet(store, path, size)
    if format == "arrow":
        from sparktrain.datasets.arrow_files import open_arrow  # as above

        return open_arrow(store, path, size)
    from sparktrain.datasets.tfrecord import TfRecordRows  # as above

    return TfRecordRows(store, path, size, manifest.compression, manifest.features)


def _check_shapes(columns: Sequence[Column], lengths: Lengths, subject: str) -> None:
    """Check that rows have the shapes of their columns. Raises DataError with all that differ."""
    problems = []
    for column in columns:
        levels = lengths.get(column.name)
        if column.shape is None or levels is None:
            continue
        wrong = [level for level, size in zip(levels, column.shape, strict=True) if level != (size, size)]
        if wrong:
            least, greatest = wrong[0]
            length = f"{least}" if least == greatest else f"{least} to {greatest}"
            noun = "lists"
            step = f"pad them with pad={{{column.name!r}: {max(greatest, *column.shape)}}}"
            if column.kind is ColumnKind.BINARY:
                noun = "bytes"
                step = "pass on_error='skip', which looks at all rows before the start"
            problems.append(
                f"column {column.name!r} has {noun} of length {length}, and of {column.shape[-1]} in the groups that "
                f"were looked at first: make them equally long, or {step}"
            )
    if problems:
        raise DataError(f"{subject}: {'; '.join(problems)}")
