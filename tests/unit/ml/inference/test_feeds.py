"""Which columns feed a model, and what is refused before anything starts."""

from typing import Any

import pyarrow as pa
import pytest

from sparktrain.errors import DataError, SpecError
from sparktrain.ml.inference.feeds import ColumnTable, feeds_of
from sparktrain.ml.inference.model_signature import ModelSignature, TensorField

VECTOR = pa.struct(
    [("type", pa.int8()), ("size", pa.int32()), ("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float64()))]
)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("features", pa.list_(pa.float64())),
        ("age", pa.float32()),
        ("visits", pa.int32()),
        ("name", pa.string()),
        ("when", pa.timestamp("us")),
        ("customer", pa.struct([("spent", pa.float64()), ("since", pa.date32())])),
        ("image", pa.binary()),
    ]
)
FOUR = TensorField("x", (4,), "float32")
ONE = TensorField("age", (1,), "float32")


def signature(*inputs: TensorField) -> ModelSignature:
    return ModelSignature(inputs, (TensorField("dense", (1,), "float32"),))


def fed(columns: Any = None, *inputs: TensorField, schema: pa.Schema = SCHEMA) -> dict[str, list[str]]:
    feeds = feeds_of(signature(*(inputs or (FOUR,))), ColumnTable(schema, "df"), columns)
    return {feed.input.name: [each.name for each in feed.columns] for feed in feeds}


def without(*names: str) -> pa.Schema:
    return pa.schema([field for field in SCHEMA if field.name not in names])


def test_inputs_take_the_columns_of_their_names() -> None:
    assert fed(None, ONE, TensorField("features", (4,), "float32")) == {"age": ["age"], "features": ["features"]}


def test_the_only_input_takes_the_only_column_that_fits() -> None:
    assert fed(schema=without("image")) == {"x": ["features"]}
    assert fed(schema=pa.schema([("id", pa.int64()), ("v", VECTOR)])) == {"x": ["v"]}
    assert fed(None, TensorField("text", (), "string"), schema=without("image")) == {"text": ["name"]}


def test_columns_are_chosen_by_name_by_place_and_side_by_side() -> None:
    assert fed("image") == {"x": ["image"]}
    assert fed(["age", "visits", "id", "customer.spent"]) == {"x": ["age", "visits", "id", "customer.spent"]}
    assert fed({"x": "features", "age": ["visits"]}, FOUR, ONE) == {"x": ["features"], "age": ["visits"]}
    assert fed(["features", "visits"], FOUR, ONE) == {"x": ["features"], "age": ["visits"]}


def test_a_column_without_a_rule_is_in_nobodys_way_unless_it_is_chosen() -> None:
    assert fed("customer.spent", ONE) == {"age": ["customer.spent"]}
    with pytest.raises(DataError, match=r"column 'when' is a timestamp.*unix_micros\(when\)"):
        fed("when", ONE)
    with pytest.raises(DataError, match=r"'customer.since' is a date32.*unix_date"):
        fed("customer.since", ONE)


@pytest.mark.parametrize(
    ("columns", "inputs", "problem"),
    [
        ("feature", (FOUR,), r"df has no column 'feature' for the model's input 'x' \(float32 of shape \(rows, 4\)\); "
                            r"did you mean 'features'\?; its columns are 'id', 'features'"),
        (["age", "visits"], (FOUR,), "2 columns are given for input 'x'"),
        (["age", "name", "id", "visits"], (FOUR,), "'name' is of type string, and only numbers can be put"),
        ("age", (FOUR,), "'age' holds one number a row"),
        ("name", (ONE,), "'name' is of type string.*cast it in Spark"),
        ("age", (TensorField("n", (), "int32"),), "'age' is of type float, and the model's input is 'n'"),
        ("age", (TensorField("t", (), "string"),), "'age' is of type float"),
        ("features", (TensorField("n", (), "float32"),), "'features' holds arrays"),
        (None, (FOUR,), "the columns 'features', 'image' fit its type: name it with columns='name'"),
        (None, (TensorField("x", (), "string"), ONE), "no column 'x' for the model's input of that name"),
    ],
)  # fmt: skip
def test_columns_that_cannot_feed_the_model_are_refused(
    columns: Any, inputs: tuple[TensorField, ...], problem: str
) -> None:
    with pytest.raises(DataError, match=problem):
        fed(columns, *inputs)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"y": "age", "age": "age"}, r"names the input 'y', which the model lacks; its inputs are 'x'"),
        ({"agee": "age"}, "did you mean 'age'"),
        ({"x": "features"}, "no entry for the model's input 'age'"),
        (["features"], "are 1 and the model has 2 inputs"),
        ([], "the name of a column or a list of names is expected"),
        (5, "columns is 5"),
    ],
)
def test_a_choice_that_names_no_inputs_is_refused(columns: Any, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        fed(columns, FOUR, ONE)


def test_a_column_that_exists_twice_is_refused_when_it_is_chosen() -> None:
    twice = pa.schema([("age", pa.float32()), ("age", pa.float64()), ("id", pa.int64())])
    assert fed("id", ONE, schema=twice) == {"age": ["id"]}
    with pytest.raises(DataError, match="df has 2 columns 'age'"):
        fed("age", ONE, schema=twice)
