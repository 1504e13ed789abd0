"""Rows as `tf.train.Example`, encoded without TensorFlow and protobuf. Pure.

The messages are Example { Features features = 1 }, Features { map<string, Feature> feature = 1 } and Feature { oneof
BytesList = 1, FloatList = 2, Int64List = 3 }; lists of numbers are packed.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparktrain.datasets.example_layout import KINDS
from sparktrain.errors import DataError

_NUMBERS = {kind: number for number, kind in KINDS.items()}
_FIRST = b"\x0a"
_SECOND = b"\x12"
"""The keys of the fields 1 and 2 of a message, with a length before the content."""


def kind_of(dtype: pa.DataType) -> str | None:
    """The kind of feature that values of this type become, as in `KINDS`; None where there is none."""
    value = dtype.value_type if _is_list(dtype) else dtype
    if pa.types.is_floating(value):
        return "float32"
    if pa.types.is_boolean(value) or pa.types.is_signed_integer(value):
        return "int64"
    is_bytes = any(test(dtype) for test in (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string))
    return "bytes" if is_bytes or pa.types.is_large_binary(dtype) else None


def encoded_examples(batch: pa.RecordBatch, subject: str) -> list[bytes]:
    """One `tf.train.Example` for each row, with a feature for each column, in the order of the columns.

    `double` becomes `float`, as the message has no other. Raises DataError for nulls, and for types without a kind.
    """
    columns = [_entries(batch.column(name), name, subject) for name in batch.schema.names]
    rows = zip(*columns, strict=True) if columns else ((),) * batch.num_rows
    return [_delimited(_FIRST, b"".join(entries)) for entries in rows]


def _entries(column: pa.Array, name: str, subject: str) -> Iterator[bytes]:
    """The entry of the map for each row of a column."""
    kind = kind_of(column.type)
    if kind is None:
        raise DataError(f"{subject}: column {name!r} is {column.type}, which no feature of tf.train.Example holds")
    values = column.flatten() if _is_list(column.type) else column
    if column.null_count or values.null_count:
        raise DataError(
            f"{subject}: column {name!r} has {column.null_count or values.null_count} nulls, and a feature has none: "
            "fill them (df.fillna), or drop these rows (df.dropna)"
        )
    key = _delimited(_FIRST, name.encode())
    tag = bytes([_NUMBERS[kind] << 3 | 2])
    for content in _contents(column, values, kind):
        yield _delimited(_FIRST, key + _delimited(_SECOND, _delimited(tag, content)))


def _contents(column: pa.Array, values: pa.Array, kind: str) -> Iterator[bytes]:
    """The list of values of each row, as the content of its message."""
    if kind == "bytes":
        for value in column.cast(pa.large_binary()).to_pylist():
            yield _delimited(_FIRST, value)
        return
    data, ends = _packed_floats(values) if kind == "float32" else _packed_integers(values)
    counts = pc.list_value_length(column).to_numpy() if _is_list(column.type) else np.ones(len(column), np.int64)
    bounds = ends[np.concatenate([[0], np.cumsum(counts)])].tolist()
    for start, stop in pairwise(bounds):
        yield _delimited(_FIRST, data[start:stop]) if stop > start else b""


def _packed_floats(values: pa.Array) -> tuple[bytes, NDArray[np.int64]]:
    """The bytes of all values, and where each starts and the last one ends."""
    return values.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False).astype("<f4").tobytes(), (
        4 * np.arange(len(values) + 1)
    )


def _packed_integers(values: pa.Array) -> tuple[bytes, NDArray[np.int64]]:
    """As `_packed_floats`, for varints."""
    varints = [varint(value) for value in values.cast(pa.int64()).to_pylist()]
    return b"".join(varints), np.concatenate([[0], np.cumsum([len(piece) for piece in varints], dtype=np.int64)])


def varint(value: int) -> bytes:
    """A whole number in the encoding of protobuf, negative ones as 64 bits."""
    value &= 0xFFFFFFFFFFFFFFFF
    encoding = bytearray()
    while value > 0x7F:
        encoding.append(value & 0x7F | 0x80)
        value >>= 7
    encoding.append(value)
    return bytes(encoding)


def _delimited(key: bytes, content: bytes) -> bytes:
    return key + varint(len(content)) + content


def _is_list(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_fixed_size_list(dtype))
