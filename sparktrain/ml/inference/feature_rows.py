"""Rows of Arrow batches as the tensors that a model takes, by the rules of training data."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparktrain.datasets.arrow_columns import is_vector
from sparktrain.datasets.columns import Column, ColumnKind
from sparktrain.datasets.values import check_values, plain_batch, shaped, to_numpy
from sparktrain.errors import DataError
from sparktrain.ml.inference.feeds import Feed
from sparktrain.ml.inference.model_signature import TensorField


def feature_batch(names: Sequence[str], arrays: Sequence[pa.Array], feeds: Sequence[Feed]) -> pa.RecordBatch:
    """The columns of the feeds alone, with the fields of structs as columns of their own, not yet converted."""
    column_names = {column.name for feed in feeds for column in feed.columns}
    columns: dict[str, pa.Array] = {}
    for name, array in zip(names, arrays, strict=True):
        _collect(name, array, column_names, columns)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def complete_rows(batch: pa.RecordBatch) -> pa.Array:
    """The numbers of the rows without a null in any column."""
    is_complete = np.ones(len(batch), bool)
    for array in batch.columns:
        is_complete &= np.asarray(pc.is_valid(array))
        if pa.types.is_list(array.type) and (values := pc.list_flatten(array)).null_count:
            is_complete[np.asarray(pc.list_parent_indices(array))[np.asarray(pc.is_null(values))]] = False
    return pa.array(np.flatnonzero(is_complete), pa.int64())


def tensors_of(batch: pa.RecordBatch, feeds: Sequence[Feed], subject: str) -> list[NDArray[Any]]:
    """One array for each feed, of shape (rows, *shape of the input). The batch has rows.

    `subject` names data and place in messages. Raises DataError for nulls, for lists of different lengths, and for
    rows of a shape that the model does not take.
    """
    columns = list({column.name: column for feed in feeds for column in feed.columns}.values())
    plain = plain_batch(batch, columns, {}, subject)
    schema = {column.name: column for column in shaped(columns, check_values(plain, columns, subject), subject)}
    tensors = []
    for feed in feeds:
        parts = [
            _values(plain.column(column.name), schema[column.name], feed.input, subject) for column in feed.columns
        ]
        tensors.append(_cast(parts[0] if len(parts) == 1 else np.stack(parts, axis=1), feed, subject))
    return tensors


def _collect(name: str, array: pa.Array, column_names: set[str], columns: dict[str, pa.Array]) -> None:
    while isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if name in column_names and (not pa.types.is_struct(array.type) or is_vector(array.type)):
        columns[name] = array
    elif pa.types.is_struct(array.type) and any(column_name.startswith(f"{name}.") for column_name in column_names):
        for field, inner in zip(array.type, array.flatten(), strict=True):
            _collect(f"{name}.{field.name}", inner, column_names, columns)


def _values(array: pa.Array, column: Column, field: TensorField, subject: str) -> NDArray[Any]:
    """The rows of one column, in the shape of the input where it is the only one."""
    if field.dtype == "string":
        column = Column(column.name, column.kind, "object", column.source, None)
    elif column.kind is ColumnKind.BINARY and column.shape is None:
        raise DataError(
            f"{subject}: column {column.name!r} has bytes of different lengths, and the model's input is {field}: "
            "decode them in Spark to arrays of one length"
        )
    rows = to_numpy(array, column)
    if column.kind is ColumnKind.NUMBER and field.shape != (1,):
        return rows if field.shape != (None,) else rows.reshape(len(rows), 1)
    return _shaped(rows, column, field, subject)


def _shaped(rows: NDArray[Any], column: Column, field: TensorField, subject: str) -> NDArray[Any]:
    """The rows in the shape of the input: as they are, or the same values row-major."""
    shape = rows.shape[1:]
    if len(shape) == len(field.shape) and all(b in (None, a) for a, b in zip(shape, field.shape, strict=True)):
        return rows
    fixed = [size for size in field.shape if size is not None]
    if len(fixed) == len(field.shape) and int(np.prod(fixed)) == int(np.prod(shape)):
        return rows.reshape(len(rows), *fixed)
    raise DataError(
        f"{subject}: rows of column {column.name!r} have the shape {shape}, and the model's input is {field}: reshape "
        "them in Spark, or predict with the model that was trained on them"
    )


def _cast(rows: NDArray[Any], feed: Feed, subject: str) -> NDArray[Any]:
    field = feed.input
    if field.dtype == "string":
        return rows
    if field.dtype == "bfloat16":
        import ml_dtypes

        return rows.astype(ml_dtypes.bfloat16)
    kind = np.dtype(field.dtype)
    # NumPy makes 44 of 300 for int8 without an error.
    if kind.kind in "iu" and rows.dtype.kind in "iu" and not np.can_cast(rows.dtype, kind) and rows.size:
        least = int(rows.min())
        upper = int(rows.max())
        range_ = np.iinfo(kind)
        if least < range_.min or upper > range_.max:
            names = ", ".join(repr(column.name) for column in feed.columns)
            raise DataError(
                f"{subject}: column {names} has values from {least:,} to {upper:,}, and the model's input is {field}, "
                f"which holds {range_.min:,} to {range_.max:,}: map them to the numbers of the training data in Spark"
            )
    return np.ascontiguousarray(rows, kind)
