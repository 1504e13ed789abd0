"""Rows as `tf.train.Example`; tests/training/test_tfrecord_files.py has TensorFlow read them."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.datasets.example_encoder import encoded_examples, kind_of, varint
from sparktrain.datasets.tf_examples import examples, features_of
from sparktrain.errors import DataError

WHOLE = st.integers(-(2**63), 2**63 - 1)
ROW = st.fixed_dictionaries(
    {
        "flag": st.booleans(),
        "whole": WHOLE,
        "part": st.floats(width=32, allow_nan=False),
        "text": st.text(max_size=20),
        "raw": st.binary(max_size=300),
        "wholes": st.lists(WHOLE, max_size=5),
        "parts": st.lists(st.floats(width=32, allow_nan=False), max_size=5),
    }
)
TYPES = {
    "flag": pa.bool_(),
    "whole": pa.int64(),
    "part": pa.float64(),
    "text": pa.string(),
    "raw": pa.binary(),
    "wholes": pa.list_(pa.int64()),
    "parts": pa.list_(pa.float32()),
}


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, pa.schema(list(TYPES.items())))


def plain(value: Any) -> list[Any]:
    """What a feature holds for the value of a column."""
    listed = value if isinstance(value, list) else [value]
    return [each.encode() if isinstance(each, str) else each for each in listed]


@given(st.lists(ROW, max_size=5))
def test_records_hold_the_values_of_rows(rows: list[dict[str, Any]]) -> None:
    found = [features_of(record) for record in encoded_examples(batch(rows), "rows")]
    assert [{name: list(values) for name, (_, values) in each.items()} for each in found] == [
        {name: plain(value) for name, value in row.items()} for row in rows
    ]


def test_a_slice_of_a_batch_has_its_own_rows() -> None:
    rows = [dict(zip(TYPES, each, strict=True)) for each in _some_rows(5)]
    cut = batch(rows).slice(2, 2)
    assert encoded_examples(cut, "rows") == encoded_examples(batch(rows), "rows")[2:4]


def _some_rows(count: int) -> list[tuple[Any, ...]]:
    return [(i % 2 == 0, i, i / 2, f"row {i}", bytes([i]) * i, list(range(i)), [i / 4] * (5 - i)) for i in range(count)]


def test_the_reader_of_columns_reads_them() -> None:
    records = encoded_examples(pa.RecordBatch.from_pydict({"x": [1, -2, 300], "y": [[0.5, 1.5]] * 3}), "rows")
    made = examples(pa.array(records, pa.binary()), {"x": "int64", "y": "float32[2]"})
    assert made.to_pydict() == {"x": [1, -2, 300], "y": [[0.5, 1.5]] * 3}


@pytest.mark.parametrize(("number", "size"), [(0, 1), (127, 1), (128, 2), (2**63 - 1, 9), (-1, 10)])
def test_sizes_of_varints(number: int, size: int) -> None:
    assert len(varint(number)) == size


@pytest.mark.parametrize(
    "dtype",
    [
        pa.date32(),
        pa.timestamp("us"),
        pa.decimal128(9),
        pa.map_(pa.string(), pa.int64()),
        pa.list_(pa.string()),
        pa.null(),
    ],
)
def test_types_without_a_feature(dtype: pa.DataType) -> None:
    assert kind_of(dtype) is None
    column = pa.nulls(0, dtype)
    with pytest.raises(DataError, match=r"column 'x' is .* no feature"):
        encoded_examples(pa.RecordBatch.from_arrays([column], ["x"]), "rows")


@pytest.mark.parametrize("column", [pa.array([1, None]), pa.array([[1.0], [None]]), pa.array(["a", None])])
def test_nulls_are_refused_by_name(column: pa.Array) -> None:
    with pytest.raises(DataError, match="column 'x' has 1 nulls, and a feature has none"):
        encoded_examples(pa.RecordBatch.from_arrays([column], ["x"]), "rows")
