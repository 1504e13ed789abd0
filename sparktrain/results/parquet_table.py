"""A table of columns as one Parquet file that Spark and DuckDB read too."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

TableColumns = Mapping[str, "Sequence[Any] | NDArray[Any] | pa.ChunkedArray"]
"""The columns of a table by name; in a sequence, None stands for a missing value."""


def parquet_of(columns: TableColumns) -> bytes:
    """The rows as Parquet, compressed by zstd; times are in microseconds.

    A column of lists, of dicts, or of values that have no common type is JSON text, and a column without a value is
    text.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: _column(values) for name, values in columns.items()})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", coerce_timestamps="us", allow_truncated_timestamps=True)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _column(values: Any) -> Any:
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        return values
    try:
        column = pa.array(values)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        # Such as a parameter that is a list in some trials only: as text, every run can be written.
        return _as_json(values)
    if pa.types.is_nested(column.type):
        return _as_json(values)
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column


def _as_json(values: Sequence[Any]) -> Any:
    import pyarrow as pa

    absent = [value is None or value != value for value in values]
    return pa.array(
        [None if none else json.dumps(value, default=str) for value, none in zip(values, absent, strict=True)],
        pa.string(),
    )
