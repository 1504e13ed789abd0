"""Columns for the features of records: their types, from a sample and from a schema, and values that do not fit."""

from typing import Any

import pytest

from sparktrain.cluster.dataframes.example_columns import ExampleColumn, columns_of_examples, columns_of_types
from sparktrain.errors import DataError

WHAT = "TFRecord files in /data"


def types(*records: dict[str, Any], binary: tuple[str, ...] = ()) -> dict[str, str]:
    return {each.name: each.spark_type for each in columns_of_examples({"/data/a": records}, binary, WHAT)}


def test_types_come_from_all_records_of_the_sample() -> None:
    one = {"b": ("int64", [1]), "a": ("float32", [0.5]), "empty": ("", [])}
    two = {"b": ("int64", [1, 2]), "text": ("bytes", [b"x"]), "raw": ("bytes", [b"\xff"])}
    assert types(one, two, binary=("raw",)) == {
        "a": "double",
        "b": "array<bigint>",
        "empty": "string",
        "raw": "binary",
        "text": "string",
    }
    assert list(types(one, two)) == ["a", "b", "empty", "raw", "text"]


def test_files_that_do_not_fit_together_are_both_named() -> None:
    sample = {"/data/a": [{"x": ("int64", [1])}], "/data/b": [{"x": ("float32", [1.0])}]}
    with pytest.raises(DataError, match=r"'x' has float32 values in /data/b, and int64 values in /data/a"):
        columns_of_examples(sample, (), WHAT)


def test_no_records_and_unknown_names_are_refused() -> None:
    with pytest.raises(DataError, match="TFRecord files in /data: no record has features"):
        types()
    with pytest.raises(DataError, match="binary_features names 'row', and the records have raw"):
        types({"raw": ("bytes", [b""])}, binary=("row",))


def test_a_schema_takes_the_place_of_the_sample() -> None:
    given = {"x": "bigint", "y": "array<double>", "z": "binary", "t": "array<string>"}
    assert {each.name: each.spark_type for each in columns_of_types(given, WHAT)} == given
    with pytest.raises(DataError, match=r"column 'd' of schema is date, and features become bigint, double, binary"):
        columns_of_types({"d": "date"}, WHAT)


@pytest.mark.parametrize(
    ("column", "found", "value"),
    [
        (ExampleColumn("x", "int64", False, False), ("int64", [7]), 7),
        (ExampleColumn("x", "int64", True, False), ("int64", [7]), [7]),
        (ExampleColumn("x", "bytes", False, True), ("bytes", [b"abc"]), "abc"),
        (ExampleColumn("x", "bytes", False, False), ("bytes", [b"\xff"]), b"\xff"),
        (ExampleColumn("x", "bytes", False, True), ("", []), None),
    ],
)
def test_values(column: ExampleColumn, found: tuple[str, list[Any]], value: Any) -> None:
    assert column.value({"x": found}) == value
    assert column.value({}) is None


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (("float32", [1.0]), "'x' has 1 of float32, and its column takes one int64: pass schema="),
        (("int64", [1, 2]), "'x' has 2 of int64, and its column takes one int64"),
    ],
)
def test_values_that_do_not_fit(found: tuple[str, list[Any]], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        ExampleColumn("x", "int64", False, False).value({"x": found})


def test_bytes_that_are_no_text_say_what_to_pass() -> None:
    with pytest.raises(DataError, match=r"'x' is no text .*: name it in binary_features"):
        ExampleColumn("x", "bytes", False, True).value({"x": ("bytes", [b"\xff"])})
