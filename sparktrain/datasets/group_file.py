"""Files of Arrow groups at known offsets. They are valid Arrow IPC streams: `pyarrow.ipc.open_stream` reads them."""

import ctypes
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import google_crc32c
import pyarrow as pa

from sparktrain.datasets.manifest import Group
from sparktrain.errors import DataError
from sparktrain.store.base import NewFile

MOST_ROWS = 65_536
MOST_BYTES = 16 * 2**20
"""The most of a group, whichever comes first."""
_CHECKSUM_BYTES = 4 * 2**20
"""So much is summed at a time, where the library holds the interpreter's lock meanwhile."""
END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""The end of an IPC stream."""


class GroupWriter:
    """Writes groups into a file. One thread uses it. Raises what `NewFile.write` raises."""

    def __init__(self, file: NewFile, schema: pa.Schema) -> None:
        self._file = file
        self._at = 0
        self.groups: list[Group] = []
        self._put(schema.serialize())

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._at

    def write(self, batch: pa.RecordBatch) -> None:
        """Write one group. Blocks on the store."""
        message = memoryview(batch.serialize())
        # Arrow reads a wrong value without an error, so each group has a checksum in the manifest.
        self.groups.append(Group(self._at, len(message), batch.num_rows, checksum(message)))
        self._put(message)

    def finish(self) -> None:
        """Write the end of the stream; the caller publishes the file."""
        self._put(END)

    def _put(self, part: Any) -> None:
        data = memoryview(part)
        self._file.write(data)
        self._at += len(data)


def regrouped(
    batches: Iterable[pa.RecordBatch], most_rows: int = MOST_ROWS, most_bytes: int = MOST_BYTES
) -> Iterator[pa.RecordBatch]:
    """The same rows in groups of `most_rows` and about `most_bytes`; only the last may have less."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        # Spark's batches end at 10,000 rows or 64 MiB, and the last one of a partition has what is left.
        for part in cut(batch, most_rows, most_bytes):
            if waiting and (rows + part.num_rows > most_rows or size + part.nbytes > most_bytes):
                room = _room(part, most_rows - rows, most_bytes - size)
                yield _one([*waiting, part.slice(0, room)])
                part = part.slice(room)
                waiting = []
                rows = 0
                size = 0
            if part.num_rows:
                waiting.append(part)
                rows = rows + part.num_rows
                size = size + part.nbytes
    if waiting:
        yield _one(waiting)


def read_group(data: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """The group in `data`, without copying. Raises DataError for bytes that are none."""
    try:
        return pa.ipc.read_record_batch(data, schema)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"a group of rows is corrupt ({error})") from error


def _extension() -> Callable[[int, pa.Buffer], int]:
    """The function that extends a CRC-32C: that of the library in C, called without the interpreter's lock."""
    try:
        from google_crc32c import _crc32c

        extend = ctypes.CDLL(_crc32c.__file__).crc32c_extend
    except (ImportError, OSError, AttributeError):  # another build of the library, or its form in Python
        return lambda value, part: int(google_crc32c.extend(value, part))
    extend.argtypes = (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t)
    extend.restype = ctypes.c_uint32
    return lambda value, part: int(extend(value, part.address, part.size))


_extend = _extension()


def checksum(data: Any) -> int:
    """CRC-32C of `data`, bytes or a buffer of them. Other threads run meanwhile, however much it is."""
    view = memoryview(data).cast("B")
    value = 0
    for start in range(0, len(view), _CHECKSUM_BYTES):
        value = _extend(value, pa.py_buffer(view[start : start + _CHECKSUM_BYTES]))
    return int(value)


def cut(batch: pa.RecordBatch, most_rows: int, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """The rows of `batch` in slices of `most_rows` and about `most_bytes`, whichever is less; none of an empty one."""
    step = most_rows
    if batch.nbytes > most_bytes:
        step = max(1, min(most_rows, batch.num_rows * most_bytes // batch.nbytes))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _room(part: pa.RecordBatch, rows: int, size: int) -> int:
    """How many rows of `part` fit."""
    by_size = part.num_rows if part.nbytes <= size else part.num_rows * max(0, size) // part.nbytes
    return int(max(0, min(rows, by_size)))


def _one(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    filled_parts = [part for part in parts if part.num_rows]
    return pa.concat_batches(filled_parts)
