"""Values of columns: Arrow arrays in their plain form, checked, and as NumPy arrays without copies. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparktrain.datasets.arrow_columns import is_vector, plain_type
from sparktrain.datasets.columns import Column, ColumnKind
from sparktrain.errors import DataError

Lengths = dict[str, tuple[tuple[int, int], ...]]
"""For each column of lists or bytes: the least and the greatest length, for each level of lists."""

_DENSE = 1
_WIDEST_SPARSE = 100_000


def plain_batch(
    batch: pa.RecordBatch, columns: Sequence[Column], pad: Mapping[str, int], subject: str
) -> pa.RecordBatch:
    """The columns of `batch` in their plain form: structs flattened, vectors as lists of float32, lists padded.

    `subject` names the data and the place in messages. Raises DataError for values that no rule covers.
    """
    arrays = dict(_leaves(batch))
    plain_arrays = [
        _padded(_plain(arrays[column.name], column, subject), column, pad.get(column.name), subject)
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(plain_arrays, names=[column.name for column in columns])


def plain_batches(
    batch: pa.RecordBatch, columns: Sequence[Column], pad: Mapping[str, int], subject: str, most_bytes: int
) -> Iterator[pa.RecordBatch]:
    """As `plain_batch`, in parts of about `most_bytes` where sparse vectors and padded lists would take more.

    Memory is bounded at any number of rows: each part is made when it is asked for. Raises DataError.
    """
    step = max(1, min(len(batch), most_bytes // max(1, _filled_bytes(batch, columns, pad))))
    for start in range(0, len(batch), step):
        yield plain_batch(batch.slice(start, step), columns, pad, subject)


def check_values(batch: pa.RecordBatch, columns: Sequence[Column], subject: str) -> Lengths:
    """The lengths of lists and bytes in a plain batch. Raises DataError, with every column that has nulls."""
    problems: list[str] = []
    lengths: Lengths = {}
    for column in columns:
        array = batch.column(column.name)
        nulls = array.null_count
        levels = []
        while pa.types.is_list(array.type) or pa.types.is_fixed_size_list(array.type):
            levels.append(_extremes(pc.list_value_length(array)))
            array = array.flatten()
            nulls += array.null_count
        if column.kind is ColumnKind.BINARY:
            levels.append(_extremes(pc.binary_length(array)))
        if nulls:
            problems.append(f"{column.name!r} has {nulls} null{'s' * (nulls != 1)}")
        if levels and len(batch):
            lengths[column.name] = tuple(levels)
    if problems:
        raise DataError(
            f"{subject}: column {', column '.join(problems)}: a tensor has no nulls; fill them (df.fillna), drop them "
            "(df.dropna), or select other columns"
        )
    return lengths


def joined(one: Lengths, addition: Lengths) -> Lengths:
    """The lengths of two parts of the same data."""
    lengths = dict(one)
    for name, levels in addition.items():
        mine = lengths.get(name, levels)
        lengths[name] = tuple((min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(mine, levels, strict=True))
    return lengths


def shaped(columns: Sequence[Column], lengths: Lengths, subject: str) -> tuple[Column, ...]:
    """The columns with the shapes of their rows. Raises DataError for lists of different lengths."""
    shaped_columns = []
    problems = []
    for column in columns:
        levels = lengths.get(column.name)
        if levels is None:
            shaped_columns.append(column)
            continue
        even = all(least == greatest for least, greatest in levels)
        if not even and column.kind is ColumnKind.ARRAY:
            problems.append(ragged(column.name, levels))
        shape = tuple(greatest for _, greatest in levels) if even else None
        shaped_columns.append(Column(column.name, column.kind, column.dtype, column.source, shape))
    if problems:
        raise DataError(f"{subject}: {'; '.join(problems)}")
    return tuple(shaped_columns)


def ragged(name: str, levels: Sequence[tuple[int, int]]) -> str:
    """The problem of lists that differ in length."""
    least, greatest = next(level for level in levels if level[0] != level[1])
    pad = "" if len(levels) > 1 else f"pad them with pad={{{name!r}: {greatest}}}, or "
    return (
        f"column {name!r} has lists of {least} to {greatest} values, and a tensor has one length for all rows: "
        f"{pad}make them equal in Spark"
    )


def to_numpy(array: pa.Array, column: Column) -> NDArray[Any]:
    """The rows of a plain array: shape (rows, *column.shape), a view of Arrow's memory except for booleans and strings.

    The array must fit the column: no nulls, and rows of its shape.
    """
    if column.strings:
        return np.asarray(array.cast(pa.binary()).to_numpy(zero_copy_only=False), dtype=object)
    if column.kind is ColumnKind.BINARY:
        return _bytes_of(array).reshape(len(array), *(column.shape or ()))
    while pa.types.is_list(array.type) or pa.types.is_fixed_size_list(array.type):
        rows = len(array)
        array = array.flatten()
        if column.shape is not None and len(column.shape) == 1:
            return _numbers(array).reshape(rows, *column.shape)
        return _numbers(array.flatten()).reshape(rows, *(column.shape or ()))
    return _numbers(array)


def _numbers(array: pa.Array) -> NDArray[Any]:
    return np.asarray(array.to_numpy(zero_copy_only=not pa.types.is_boolean(array.type)))


def _bytes_of(array: pa.Array) -> NDArray[np.uint8]:
    """All bytes of rows of equal length, without offsets."""
    if pa.types.is_fixed_size_binary(array.type):
        width = array.type.byte_width
        flat = np.frombuffer(array.buffers()[1], np.uint8)
        return flat[array.offset * width : (array.offset + len(array)) * width]
    if not len(array):
        return np.zeros(0, np.uint8)
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]] if data is not None else np.zeros(0, np.uint8)


def _leaves(batch: Any, prefix: str = "") -> Iterator[tuple[str, pa.Array]]:
    """All columns by name, with the fields of structs as columns of their own: see `arrow_columns.columns_of`."""
    fields = batch.schema if isinstance(batch, pa.RecordBatch) else batch.type
    arrays = batch.columns if isinstance(batch, pa.RecordBatch) else batch.flatten()
    for field, array in zip(fields, arrays, strict=True):
        while isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        if pa.types.is_dictionary(array.type) and pa.types.is_struct(array.type.value_type):
            array = array.dictionary_decode()
        name = f"{prefix}{field.name}"
        if pa.types.is_struct(array.type) and not is_vector(array.type):
            yield from _leaves(array, f"{name}.")
        else:
            yield name, array


def _filled_bytes(batch: pa.RecordBatch, columns: Sequence[Column], pad: Mapping[str, int]) -> int:
    """Bytes of the widest row in those columns that their plain form fills with zeros."""
    arrays = dict(_leaves(batch))
    row_bytes = 0
    for column in columns:
        array = arrays[column.name]
        width = pad.get(column.name, 0)
        if is_vector(array.type):
            _, sizes, _, values = array.flatten()
            width = max(width, pc.max(sizes).as_py() or 0, pc.max(pc.list_value_length(values)).as_py() or 0)
        row_bytes += width * np.dtype(column.dtype).itemsize
    return row_bytes


def _plain(array: pa.Array, column: Column, subject: str) -> pa.Array:
    if is_vector(array.type):
        return _vectors(array, column.name, subject)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_fixed_size_list(array.type):
        return array
    kind = plain_type(array.type)
    return array if array.type == kind else array.cast(kind)


def _vectors(array: pa.Array, name: str, subject: str) -> pa.Array:
    """Vectors of Spark ML, dense and sparse, as lists of float32."""
    if array.null_count:
        # Only the nulls matter: `check_values` reports them, together with those of all other columns.
        return pa.ListArray.from_arrays(pa.array([0] * (len(array) + 1), pa.int32()), pa.array([], pa.float32())).take(
            pa.array([None if not valid else i for i, valid in enumerate(array.is_valid().to_pylist())], pa.int32())
        )
    kinds, sizes, indices, values = array.flatten()
    dense = np.asarray(kinds) == _DENSE
    held = np.asarray(pc.list_value_length(values))
    numbers = np.asarray(values.flatten()).astype(np.float32)
    if dense.all():
        return _lists(held, numbers)
    widths = np.where(dense, held, np.asarray(pc.fill_null(sizes, 0)))
    if widths.max() > _WIDEST_SPARSE:
        raise DataError(
            f"{subject}: column {name!r} is a sparse vector of {widths.max():,} entries, {4 * int(widths.max()):,} "
            f"bytes a row as float32: reduce it in Spark (at most {_WIDEST_SPARSE:,}), or select its indices and values"
        )
    starts = np.concatenate([[0], np.cumsum(widths)])
    rows = np.repeat(np.arange(len(array)), held)
    within = np.arange(len(numbers)) - np.repeat(np.cumsum(held) - held, held)
    sparse = ~dense[rows]
    within[sparse] = np.asarray(indices.flatten())
    filled = np.zeros(starts[-1], np.float32)
    filled[starts[rows] + within] = numbers
    return _lists(widths, filled)


def _lists(lengths: NDArray[Any], values: NDArray[Any]) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


def _padded(array: pa.Array, column: Column, length: int | None, subject: str) -> pa.Array:
    """Lists filled with zeros up to `length`; unchanged without one."""
    if length is None or array.null_count or not pa.types.is_list(array.type):
        return array
    held = np.asarray(pc.list_value_length(array))
    if len(held) and held.max() > length:
        raise DataError(
            f"{subject}: column {column.name!r} has a list of {held.max()} values, and "
            f"pad={{{column.name!r}: {length}}} is shorter: pass {held.max()} or more"
        )
    values = array.flatten()
    if values.null_count:
        return array
    numbers = np.asarray(values.to_numpy(zero_copy_only=False))
    filled = np.zeros((len(array), length), numbers.dtype)
    filled[np.arange(length) < held[:, np.newaxis]] = numbers
    return _lists(np.full(len(array), length), filled.reshape(-1))


def _extremes(lengths: pa.Array) -> tuple[int, int]:
    extremes = pc.min_max(lengths).as_py()
    return extremes["min"] or 0, extremes["max"] or 0
