"""A table of pandas as one Parquet file that Spark and DuckDB read too."""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def parquet_of(frame: "pd.DataFrame") -> bytes:
    """The rows as Parquet, compressed by zstd; times are in microseconds.

    A column of lists, of dicts, or of values that have no common type is JSON text, and a column without a value is
    text.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: _column(frame[name]) for name in frame.columns})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", coerce_timestamps="us", allow_truncated_timestamps=True)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _column(values: "pd.Series[Any]") -> Any:
    import pyarrow as pa

    try:
        column = pa.array(values, from_pandas=values.dtype == object)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return _as_json(values)
    if pa.types.is_nested(column.type):
        return _as_json(values)
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column


def _as_json(values: "pd.Series[Any]") -> Any:
    import pyarrow as pa

    absent = [value is None or value != value for value in values]
    return pa.array(
        [None if none else json.dumps(value, default=str) for value, none in zip(values, absent, strict=True)],
        pa.string(),
    )
