"""Parquet files: their groups by the footer, and a row group from its byte ranges, without Python file objects."""

import mmap
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from sparktrain.datasets.file_formats import CorruptFileError, GroupedFile, has_dictionary, read_exactly, with_names
from sparktrain.datasets.group_file import checksum
from sparktrain.datasets.manifest import Group
from sparktrain.datasets.thrift_compact import decoded_struct
from sparktrain.datasets.values import Lengths
from sparktrain.errors import DataError
from sparktrain.store.base import Store

_TAIL_BYTES = 64 * 2**10
"""Read at once: the footer of most files, with its length."""
_GAP_BYTES = 2**20
"""Chunks of columns that are this near are read by one request."""
_LEAST_BYTES = 12
_MAP_NORESERVE = 0x4000
"""Of Linux: the pages of holes count for nothing."""
_FAILURES = (pa.ArrowException, OSError)
"""What Arrow raises for bytes that it cannot decode."""

# Numbers of fields in Parquet's footer.
_ROW_GROUPS = 4
_COLUMNS = 1
_NUM_ROWS = 3
_CHUNK_METADATA = 3
_COMPRESSED_SIZE = 7
_DATA_PAGE = 9
_DICTIONARY_PAGE = 11
_STATISTICS = 12
_NULL_COUNT = 3


class ColumnChunk(Struct, frozen=True):
    """The bytes of a leaf column in a row group."""

    start: int
    size: int
    nulls: int
    """0 where the file does not count them."""


class RowGroup(Struct, frozen=True):
    """A row group by the footer."""

    rows: int
    chunks: tuple[ColumnChunk, ...]
    """Of each leaf column, in the order of the schema."""


def open_parquet(store: Store, path: str, size: int) -> "ParquetRows":
    """Read the footer of a Parquet file of `size` bytes by one or two ranges. Raises CorruptFileError, DataError."""
    if size < _LEAST_BYTES:
        raise CorruptFileError(f"it has {size} bytes, and a Parquet file has at least {_LEAST_BYTES}")
    tail = read_exactly(store, path, max(0, size - _TAIL_BYTES), min(size, _TAIL_BYTES))
    if tail.endswith(b"PARE"):
        raise DataError(f"{store.where(path)} is encrypted, which sparktrain cannot read: write it without encryption")
    if not tail.endswith(b"PAR1"):
        raise CorruptFileError("it does not end as a Parquet file does, with PAR1")
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > size - 4:
        raise CorruptFileError(f"its footer claims {length:,} bytes of {size:,}")
    if length > len(tail):
        tail = read_exactly(store, path, size - length, length)
    footer = tail[-length:]
    try:
        metadata = pq.read_metadata(pa.BufferReader(footer))
        schema = with_names(metadata.schema.to_arrow_schema())
        row_groups = _row_groups(footer[:-8], metadata.num_columns)
    except (*_FAILURES, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFileError(f"its footer is corrupt ({error})") from error
    return ParquetRows(store, path, size, metadata, schema, row_groups, footer)


class ParquetRows(GroupedFile):
    """A Parquet file by its footer."""

    def __init__(
        self,
        store: Store,
        path: str,
        size: int,
        metadata: pq.FileMetaData,
        schema: pa.Schema,
        row_groups: Sequence[RowGroup],
        footer: bytes,
    ) -> None:
        self.schema = schema
        self.footer = len(footer)
        self.footer_checksum = checksum(footer)
        self._store = store
        self._path = path
        self._size = size
        self._metadata = metadata
        self._row_groups = row_groups
        self._leaves = [metadata.schema.column(index) for index in range(metadata.num_columns)]
        self._starts = sorted(
            (min(chunk.start for chunk in group.chunks), number)
            for number, group in enumerate(row_groups)
            if group.rows
        )

    def groups(self, names: Sequence[str]) -> tuple[tuple[Group, ...], Lengths]:
        """See base class."""
        indices = self._leaf_indices(names)
        file_groups = []
        for number, row_group in enumerate(self._row_groups):
            if not row_group.rows:
                continue
            chunks = [row_group.chunks[index] for index in indices]
            start = min(chunk.start for chunk in chunks)
            end = max(chunk.start + chunk.size for chunk in chunks)
            if start < 0 or end > self._size:
                raise CorruptFileError(f"row group {number} ends at byte {end:,} of {self._size:,}: the file is cut")
            file_groups.append(Group(start, end - start, row_group.rows))
        return tuple(file_groups), {}

    def nulls(self, names: Sequence[str]) -> dict[str, int]:
        """See base class. Of columns without lists."""
        counts: dict[str, int] = {}
        for index in self._leaf_indices(names):
            leaf = self._leaves[index]
            name = leaf.path if leaf.path in names else leaf.path.rpartition(".")[0]
            # A vector has nulls among its indices by design, and always a type.
            if (
                leaf.max_repetition_level
                or not leaf.max_definition_level
                or (name != leaf.path and leaf.name != "type")
            ):
                continue
            if nulls := sum(row_group.chunks[index].nulls for row_group in self._row_groups):
                counts[name] = counts.get(name, 0) + nulls
        return counts

    def read(self, group: Group, names: Sequence[str]) -> pa.RecordBatch:
        """See base class. The bytes lie in a sparse map as they do in the file; checksums of pages are checked."""
        number = self.number(group)
        # A map and no Python file object: with those, interpreters that hang at exit are reported.
        with_holes = mmap.mmap(-1, self._size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
        for start, length in _near([self._row_groups[number].chunks[index] for index in self._leaf_indices(names)]):
            with_holes[start : start + length] = read_exactly(self._store, self._path, start, length)
        try:
            file = pq.ParquetFile(
                pa.BufferReader(pa.py_buffer(with_holes)), metadata=self._metadata, page_checksum_verification=True
            )
            # Arrow's pool has a thread for each core of the host, and each member of the host would have such a pool.
            batches = file.read_row_group(number, list(names), use_threads=False).combine_chunks().to_batches()
            batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
            if has_dictionary(batch.schema):
                batch.validate(full=True)
        except _FAILURES as error:
            raise CorruptFileError(str(error).strip()) from error
        return batch

    def number(self, group: Group) -> int:
        """See base class."""
        return self._starts[bisect_right(self._starts, group.offset, key=lambda start: start[0]) - 1][1]

    def _leaf_indices(self, names: Sequence[str]) -> list[int]:
        """The numbers of the leaves that these columns consist of."""
        return [
            index
            for index, leaf in enumerate(self._leaves)
            if any(leaf.path == name or leaf.path.startswith(f"{name}.") for name in names)
        ]


def _row_groups(footer: bytes, columns: int) -> list[RowGroup]:
    """The row groups in a footer. PyArrow gives them too, and aborts the process where their numbers are corrupt.

    Raises ValueError, KeyError, TypeError and AttributeError.
    """
    row_groups = []
    for fields in decoded_struct(footer).get(_ROW_GROUPS, []):
        chunks = tuple(_chunk(chunk[_CHUNK_METADATA]) for chunk in fields[_COLUMNS])
        if len(chunks) != columns:
            raise ValueError(f"a row group has {len(chunks)} columns, and the schema has {columns}")
        row_groups.append(RowGroup(int(fields[_NUM_ROWS]), chunks))
    return row_groups


def _chunk(metadata: dict[int, Any]) -> ColumnChunk:
    start = int(metadata[_DATA_PAGE])
    size = int(metadata[_COMPRESSED_SIZE])
    dictionary = int(metadata.get(_DICTIONARY_PAGE, 0))
    start = min(start, dictionary) if dictionary > 0 else start
    if start < 0 or size < 0:
        raise ValueError(f"a column starts at byte {start} and has {size} bytes")
    return ColumnChunk(start, size, int(metadata.get(_STATISTICS, {}).get(_NULL_COUNT, 0)))


def _near(chunks: Sequence[ColumnChunk]) -> list[tuple[int, int]]:
    """Start and length of the ranges with all chunks; near ones are joined."""
    merged: list[tuple[int, int]] = []
    for chunk in sorted(chunks, key=lambda chunk: chunk.start):
        if merged and chunk.start - sum(merged[-1]) <= _GAP_BYTES:
            first = merged[-1][0]
            merged[-1] = (first, max(sum(merged[-1]), chunk.start + chunk.size) - first)
        else:
            merged.append((chunk.start, chunk.size))
    return merged
