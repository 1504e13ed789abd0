"""Rows of batches as tensors: shapes, types, nulls, and the columns that outputs become."""

import numpy as np
import pyarrow as pa
import pytest

from sparktrain.errors import DataError
from sparktrain.ml.inference.feature_rows import complete_rows, feature_batch, tensors_of
from sparktrain.ml.inference.feeds import ColumnChoice, ColumnTable, Feed, feeds_of
from sparktrain.ml.inference.model_signature import ModelSignature, TensorField, output_type

BATCH = pa.RecordBatch.from_pydict(
    {
        "a": pa.array([1.0, 2.0, 3.0]),
        "b": pa.array([4, 5, 6], pa.int32()),
        "v": pa.array([[1.0, 2.0, 3.0, 4.0]] * 3, pa.list_(pa.float64())),
        "image": pa.array([bytes(range(4))] * 3),
        "s": pa.array([{"x": 1.0}, {"x": 2.0}, {"x": 3.0}]),
        "t": pa.array(["a", "b", "c"]),
        "gaps": pa.array([1.0, None, 3.0]),
        "holes": pa.array([[1.0, 2.0], [None, 2.0], None]),
        "ragged": pa.array([[1.0], [1.0, 2.0], [3.0]]),
    }
)


def feeds(columns: ColumnChoice, *shape: int | None, dtype: str = "float32") -> tuple[Feed, ...]:
    signature = ModelSignature((TensorField("in", shape, dtype),), ())
    return feeds_of(signature, ColumnTable(BATCH.schema, "df"), columns)


def tensor(columns: ColumnChoice, *shape: int | None, dtype: str = "float32") -> np.ndarray:
    chosen = feeds(columns, *shape, dtype=dtype)
    [made] = tensors_of(feature_batch(BATCH.schema.names, BATCH.columns, chosen), chosen, "df (partition 2)")
    return made


def test_numbers_become_the_type_and_shape_of_the_input() -> None:
    assert tensor("a").tolist() == [1, 2, 3]
    assert tensor("s.x", 1).tolist() == [[1], [2], [3]]
    assert tensor(["a", "b"], 2).tolist() == [[1, 4], [2, 5], [3, 6]]
    assert tensor("b", None).shape == (3, 1)
    assert tensor("b", dtype="int64").dtype == np.int64
    assert tensor("a").dtype == np.float32


def test_arrays_and_bytes_take_the_shape_of_the_input_where_their_size_is_right() -> None:
    assert tensor("v", 4).shape == (3, 4)
    assert tensor("v", None).shape == (3, 4)
    assert tensor("image", 2, 2, 1, dtype="uint8")[0].ravel().tolist() == [0, 1, 2, 3]
    assert tensor("image", 4).dtype == np.float32
    assert tensor("t", dtype="string").tolist() == [b"a", b"b", b"c"]
    assert tensor("image", dtype="string").tolist() == [bytes(range(4))] * 3
    with pytest.raises(DataError, match=r"\(partition 2\): rows of column 'v' have the shape \(4,\), and the model's"):
        tensor("v", 5)


@pytest.mark.parametrize(
    ("column", "problem"),
    [("gaps", "column 'gaps' has 1 null"), ("holes", "'holes' has 2 nulls"), ("ragged", "lists of 1 to 2 values")],
)
def test_values_that_make_no_tensor_are_refused(column: str, problem: str) -> None:
    with pytest.raises(DataError, match=rf"df \(partition 2\): .*{problem}"):
        tensor(column, *(() if column == "gaps" else (2,)))


def test_complete_rows_have_no_null_at_any_level() -> None:
    assert complete_rows(BATCH.select(["a", "gaps"])).to_pylist() == [0, 2]
    assert complete_rows(BATCH.select(["holes", "b"])).to_pylist() == [0]
    assert complete_rows(BATCH.slice(1).select(["holes", "gaps"])).to_pylist() == []


@pytest.mark.parametrize(
    ("field", "values", "kind", "rows"),
    [
        (TensorField("p", (1,), "float32"), np.ones((2, 1), np.float32), pa.float32(), [1.0, 1.0]),
        (TensorField("p", (), "float16"), np.ones(2, np.float16), pa.float32(), [1.0, 1.0]),
        (TensorField("p", (), "uint8"), np.array([255, 0], np.uint8), pa.int16(), [255, 0]),
        (TensorField("p", (), "bool"), np.array([True, False]), pa.bool_(), [True, False]),
        (TensorField("p", (), "string"), np.array([b"x", b"y"], object), pa.string(), ["x", "y"]),
        (TensorField("p", (2,), "int64"), np.arange(4).reshape(2, 2), pa.list_(pa.int64()), [[0, 1], [2, 3]]),
        (
            TensorField("p", (1, 2), "float64"),
            np.arange(4.0).reshape(2, 1, 2),
            pa.list_(pa.list_(pa.float64())),
            [[[0.0, 1.0]], [[2.0, 3.0]]],
        ),
    ],
    ids=lambda each: str(each) if isinstance(each, pa.DataType) else "",
)
def test_outputs_become_columns(field: TensorField, values: np.ndarray, kind: pa.DataType, rows: list) -> None:
    column = field.column(values)
    assert (field.arrow, column.type, column.to_pylist()) == (kind, kind, rows)


def test_several_outputs_are_a_struct() -> None:
    outputs = (TensorField("score", (1,), "float32"), TensorField("classes", (3,), "float32"))
    assert output_type(outputs) == pa.struct([("score", pa.float32()), ("classes", pa.list_(pa.float32()))])
    assert output_type(outputs[:1]) == pa.float32()


def test_whole_numbers_that_the_input_cannot_hold_are_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"a": pa.array([1, -3, 2**33])})
    for dtype, held in (("int32", "-2,147,483,648 to 2,147,483,647"), ("uint8", "0 to 255")):
        signature = ModelSignature((TensorField("in", (), dtype),), ())
        chosen = feeds_of(signature, ColumnTable(batch.schema, "df"), "a")
        assert tensors_of(batch.slice(0, 1), chosen, "df")[0].tolist() == [1]
        with pytest.raises(DataError, match=rf"df: column 'a' has values from -3 to 8,589,934,592, .* holds {held}"):
            tensors_of(batch, chosen, "df")
