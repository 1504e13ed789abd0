"""Python objects as rows of bytes: their arrays lie in them as in memory, so that all processes of a host map them.

In comes an object that pickles, such as arrays, sparse matrices and DataFrames of pandas. Pickle's protocol 5 writes
its arrays beside the pickle, without a copy in it. What goes out is a table of one column, rows of equal length, which
a run stores as any dataset; the pickle comes first, then each array at a multiple of 64 bytes.

What must hold: reading a pickle runs code, and every writer of a store can change the rows. So the digest of the
pickle does not lie with the rows: it travels with the code of the run, and the pickle is compared with it first.
"""

import hashlib
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from sparktrain.errors import DataError

COLUMN = "bytes"
"""The name of the only column."""
ROW_BYTES = 2**20
"""The most of one row."""
_ALIGNMENT = 64
"""Of each array: the length of a cache line, which NumPy's loops prefer."""
_PROTOCOL = 5


class ObjectIndex(Struct, frozen=True):
    """Where the parts of an object are in its bytes."""

    sizes: tuple[int, ...]
    """Bytes of the pickle, and of each array."""
    digest: str
    """SHA-256 of the pickle."""

    def places(self) -> Iterator[slice]:
        """The places of the parts, in their order."""
        start = 0
        for size in self.sizes:
            yield slice(start, start + size)
            start += _aligned(size)


def object_table(value: object) -> tuple[pa.Table, ObjectIndex]:
    """The rows of an object, and where its parts are in them. Copies its arrays once. Raises what pickling raises."""
    buffers: list[pickle.PickleBuffer] = []
    stream = pickle.dumps(value, protocol=_PROTOCOL, buffer_callback=buffers.append)
    parts = [memoryview(stream), *(buffer.raw() for buffer in buffers)]
    index = ObjectIndex(tuple(part.nbytes for part in parts), hashlib.sha256(stream).hexdigest())
    total = sum(map(_aligned, index.sizes))
    row = min(total, ROW_BYTES)
    count = -(-total // row)
    content = np.zeros(count * row, np.uint8)
    for place, part in zip(index.places(), parts, strict=True):
        content[place] = np.frombuffer(part, np.uint8)
    rows = pa.FixedSizeBinaryArray.from_buffers(pa.binary(row), count, [None, pa.py_buffer(content)])
    return pa.table({COLUMN: rows}), index


def object_in(content: memoryview, index: ObjectIndex) -> Any:
    """The object in the bytes of its rows; its arrays are views of `content`, and read-only where that is.

    Runs the code that the pickle names. Raises DataError, before that, for a pickle that is not the one of `index`.
    """
    stream, *arrays = [content[place] for place in index.places()]
    if (digest := hashlib.sha256(stream).hexdigest()) != index.digest:
        raise DataError(
            f"the data of the search are not those that its driver has sent: SHA-256 of their structure is {digest}, "
            f"and {index.digest} is expected; the run directory was changed: start the search in a new one"
        )
    return pickle.loads(stream, buffers=arrays)


def _aligned(size: int) -> int:
    """The bytes that a part of `size` bytes takes, with those up to the next part."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT
