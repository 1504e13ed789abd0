"""Columns out of records with `tf.train.Example`, decoded without TensorFlow and protobuf."""

import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparktrain.datasets.example_layout import KINDS, fields_of, layout_of, values_at, varints, with_layout
from sparktrain.datasets.file_formats import CorruptFileError
from sparktrain.errors import BugError, DataError

_SPELLED = re.compile(r"(int64|float32|bytes)(\[([0-9]*)\])?")
_ARROW = {"bytes": pa.binary(), "float32": pa.float32(), "int64": pa.int64()}
_LEAST_ALIKE = 8
"""Fewer records of one layout are decoded faster one by one."""
_MOST_MISSES = 4
"""After so many layouts in sequence with fewer records, the rest is decoded one by one."""

_MOST_LAYOUTS = 64

_Spec = tuple[str, bool, int | None]
"""See `_parsed`."""


def example_schema(features: Mapping[str, str]) -> pa.Schema:
    """The Arrow schema of these features: see `sparktrain.data.tfrecord`."""
    fields = []
    for name, spelled in features.items():
        kind, lists, _ = _parsed(spelled)
        fields.append((name, pa.list_(_ARROW[kind]) if lists else _ARROW[kind]))
    return pa.schema(fields)


def examples(records: pa.Array, features: Mapping[str, str]) -> pa.RecordBatch:
    """The features of all records. Raises DataError for a feature that is missing, of another type or length.

    Raises CorruptFileError for a record that is no `tf.train.Example`. Records with the same layout, which the same
    program writes for features of fixed lengths, are decoded together.
    """
    schema = example_schema(features)
    specs = {name.encode(): _parsed(spelled) for name, spelled in features.items()}
    remaining_rows = np.arange(len(records))
    parts: list[tuple[NDArray[np.int64], list[pa.Array]]] = []
    misses = 0
    while len(remaining_rows) >= _LEAST_ALIKE and misses < _MOST_MISSES and len(parts) < _MOST_LAYOUTS:
        alike, arrays = _alike(records, remaining_rows, specs, schema)
        misses = 0 if len(alike) >= _LEAST_ALIKE else misses + 1
        parts.append((alike, arrays))
        remaining_rows = np.setdiff1d(remaining_rows, alike, assume_unique=True)
    if len(remaining_rows) or not parts:
        parts.append((remaining_rows, _one_by_one(records, remaining_rows, specs, schema)))
    arrays = [pa.concat_arrays(chunks) for chunks in zip(*(arrays for _, arrays in parts), strict=True)]
    if len(parts) > 1:
        order = pa.array(np.argsort(np.concatenate([rows for rows, _ in parts])))
        arrays = [array.take(order) for array in arrays]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def features_of(record: bytes) -> dict[str, tuple[str, Sequence[Any]]]:
    """The kind and the values of each feature of an example, by name; an empty kind for a feature that is not set.

    Raises CorruptFileError for bytes that are no `tf.train.Example`.
    """
    try:
        return {name.decode(): _feature(feature) for name, feature in _features(record).items()}
    except (IndexError, struct.error, ValueError) as error:
        raise CorruptFileError(f"it is no tf.train.Example ({error})") from error


def _alike(
    records: pa.Array, remaining_rows: NDArray[np.int64], specs: Mapping[bytes, _Spec], schema: pa.Schema
) -> tuple[NDArray[np.int64], list[pa.Array]]:
    """Those of `remaining_rows` that have the layout of the first of them, and their features."""
    first: bytes = records[int(remaining_rows[0])].as_py()
    # One record decoded in full reports features that are missing or of another type, for all that are alike.
    checked = _one_by_one(records, remaining_rows[:1], specs, schema)
    spans = layout_of(first)
    if spans is None or not specs.keys() <= spans.keys():
        return remaining_rows[:1], checked
    lengths = np.asarray(pc.binary_length(records))[remaining_rows]
    rows = remaining_rows[lengths == len(first)]
    bodies = records if len(rows) == len(records) else records.take(pa.array(rows))
    _, offsets, data = bodies.buffers()
    start = int(np.frombuffer(offsets, np.int32)[bodies.offset])
    matrix = np.frombuffer(data, np.uint8)[start : start + len(rows) * len(first)].reshape(len(rows), len(first))
    matches = with_layout(matrix, first, spans)
    rows = rows[matches]
    matrix = matrix if matches.all() else matrix[matches]
    arrays = []
    for (name, (_, lists, _)), field in zip(specs.items(), schema, strict=True):
        values = values_at(matrix, first, spans[name])
        count = values.shape[1]
        flat = np.ascontiguousarray(values).reshape(-1)
        bounds = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(count)
        if field.type == pa.binary():
            buffers = [None, pa.py_buffer(bounds), pa.py_buffer(flat)]
            arrays.append(pa.BinaryArray.from_buffers(field.type, len(rows), buffers))
        elif lists:
            arrays.append(pa.ListArray.from_arrays(pa.array(bounds), pa.array(flat)))
        else:
            arrays.append(pa.array(flat))
    return rows, arrays


def _one_by_one(
    records: pa.Array, rows: NDArray[np.int64], specs: Mapping[bytes, _Spec], schema: pa.Schema
) -> list[pa.Array]:
    """The features of these rows, of any layout."""
    columns: dict[bytes, list[Any]] = {name: [] for name in specs}
    picked = records if len(rows) == len(records) else records.take(pa.array(rows))
    for number, record in zip(rows.tolist(), picked.to_pylist(), strict=True):
        try:
            held = _features(record)
        except (IndexError, struct.error, ValueError) as error:
            raise CorruptFileError(f"record {number} is no tf.train.Example ({error})") from error
        for name, (kind, lists, length) in specs.items():
            values = _values(held, name, kind, number)
            count = length if lists else 1
            if count is not None and len(values) != count:
                raise DataError(
                    f"record {number}: feature {name.decode()!r} has {len(values)} values, and features= asks for "
                    f"{count}: correct the length, or write ({kind!r}, None) and pad="
                )
            columns[name].append(values if lists else values[0])
    return [_array(columns[name], field.type) for name, field in zip(specs, schema, strict=True)]


def _array(rows: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_list(kind):
        return pa.array(rows, kind)
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int32)
    values: Any = np.concatenate(rows) if rows else []
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values, kind.value_type))


def _values(held: Mapping[bytes, bytes], name: bytes, kind: str, number: int) -> Any:
    feature = held.get(name)
    if feature is None:
        names = ", ".join(sorted(repr(key.decode(errors="replace")) for key in held))
        raise DataError(f"record {number} has no feature {name.decode()!r}; its features are {names or 'none'}")
    try:
        data_kind, values = _feature(feature)
    except (IndexError, struct.error, ValueError) as error:
        raise CorruptFileError(f"feature {name.decode()!r} of record {number} is corrupt ({error})") from error
    if data_kind != kind and data_kind:
        raise DataError(
            f"record {number}: feature {name.decode()!r} has {data_kind} values, and features= asks for {kind}: write "
            f"{data_kind!r}"
        )
    return values


def _parsed(spelled: str) -> _Spec:
    """Type, whether it is a list, and its length if that is fixed."""
    match = _SPELLED.fullmatch(spelled)
    if match is None:
        raise BugError(f"feature {spelled!r} has no type")
    return match[1], match[2] is not None, int(match[3]) if match[3] else None


def _features(record: bytes) -> dict[bytes, bytes]:
    """The encoded features of an example, by name."""
    held: dict[bytes, bytes] = {}
    for number, features in fields_of(record):
        if number != 1:
            continue
        for field_number, entry in fields_of(features):
            if field_number == 1:
                pair = dict(fields_of(entry))
                held[pair.get(1, b"")] = pair.get(2, b"")
    return held


def _feature(data: bytes) -> tuple[str, Any]:
    """Type and values of a feature; an empty type and no values for one that is not set."""
    kind = ""
    values: Any = []
    for number, content in fields_of(data):
        if number in KINDS:
            kind = KINDS[number]
            values = _LISTS[kind](content)
    return kind, values


def _bytes_list(data: bytes) -> list[bytes]:
    return [content for number, content in fields_of(data) if number == 1]


def _float_list(data: bytes) -> Any:
    parts = [np.frombuffer(content, "<f4") for number, content in fields_of(data) if number == 1]
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.float32), *parts])


def _int64_list(data: bytes) -> Any:
    """Packed, or one by one as old writers have them."""
    parts = [varints(content) for number, content in fields_of(data) if number == 1]
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int64), *parts])


_LISTS = {"bytes": _bytes_list, "float32": _float_list, "int64": _int64_list}
