"""Each column type becomes a tensor by its rule, or an error names the way to convert it."""

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparktrain.datasets.arrow_columns import columns_of
from sparktrain.datasets.columns import Column, ColumnKind, check_alike, check_pad, chosen
from sparktrain.datasets.values import check_values, joined, plain_batch, plain_batches, shaped, to_numpy
from sparktrain.errors import DataError

VECTOR = pa.struct(
    [
        pa.field("type", pa.int8(), nullable=False),
        pa.field("size", pa.int32()),
        pa.field("indices", pa.list_(pa.int32())),
        pa.field("values", pa.list_(pa.float64())),
    ]
)
MATRIX = pa.struct(
    [
        ("type", pa.int8()),
        ("numRows", pa.int32()),
        ("numCols", pa.int32()),
        ("colPtrs", pa.list_(pa.int32())),
        ("rowIndices", pa.list_(pa.int32())),
        ("values", pa.list_(pa.float64())),
        ("isTransposed", pa.bool_()),
    ]
)


def dense(*values: float) -> dict[str, Any]:
    return {"type": 1, "size": None, "indices": None, "values": list(values)}


def sparse(size: int, **entries: float) -> dict[str, Any]:
    return {
        "type": 0,
        "size": size,
        "indices": [int(each[1:]) for each in entries],
        "values": list(entries.values()),
    }


def converted(batch: pa.RecordBatch, pad: dict[str, int] | None = None, **names: Any) -> dict[str, np.ndarray]:
    """All columns of a batch as members get them."""
    columns = columns_of(batch.schema, "data['train']", **names)
    plain = plain_batch(batch, columns, pad or {}, "data['train'], partition 3")
    fitting = shaped(columns, check_values(plain, columns, "data['train'], partition 3"), "data['train']")
    found = {each.name: to_numpy(plain.column(each.name), each) for each in fitting}
    assert {each.name: (len(batch), *(each.shape or ())) for each in fitting if not each.strings} == {
        each.name: found[each.name].shape for each in fitting if not each.strings
    }
    return found


def one(array: pa.Array, **options: Any) -> np.ndarray:
    """A column as members get it: whole, and the same from the middle of a larger one, and from an empty one."""
    batch = pa.record_batch([array], names=["x"])
    found = converted(batch, **options)["x"]
    twice = pa.Table.from_batches([batch, batch, batch]).combine_chunks().to_batches()[0]
    middle = converted(twice.slice(len(array), len(array)), **options)["x"]
    assert middle.tolist() == found.tolist()
    assert middle.dtype == found.dtype
    columns = columns_of(batch.schema, "x")
    empty = plain_batch(batch.slice(0, 0), columns, options.get("pad") or {}, "x")
    assert check_values(empty, columns, "x") == {}
    return found


@pytest.mark.parametrize(
    "kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
)
def test_numbers_keep_their_type_and_are_views(kind: str) -> None:
    array = pa.array(np.array([1, 2, 3], kind))
    found = one(array)

    assert (found.dtype, found.tolist()) == (np.dtype(kind), [1, 2, 3])
    assert not found.flags.owndata
    assert columns_of(pa.schema([("x", array.type)]), "x")[0].kind is ColumnKind.NUMBER


def test_booleans_strings_and_bytes() -> None:
    assert one(pa.array([True, False, True])).dtype == np.bool_
    assert one(pa.array([True, False, True])).tolist() == [True, False, True]
    assert one(pa.array(["a", "ü"])).tolist() == [b"a", "ü".encode()]
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        assert one(pa.array(["a", "b", "a"]).cast(kind)).tolist() == [b"a", b"b", b"a"]
    equal = one(pa.array([b"\x00\x01", b"\xff\x02"]))
    assert (equal.dtype, equal.tolist()) == (np.uint8, [[0, 1], [255, 2]])
    for kind in (pa.large_binary(), pa.binary(2), pa.binary_view()):
        assert one(pa.array([b"\x00\x01", b"\xff\x02"]).cast(kind)).tolist() == [[0, 1], [255, 2]]
    assert one(pa.array([b"a", b"bcd"])).tolist() == [b"a", b"bcd"]


@pytest.mark.parametrize("kind", [pa.int32(), pa.float32(), pa.float64(), pa.bool_(), pa.uint8()])
def test_lists_of_equal_length_are_arrays(kind: pa.DataType) -> None:
    for array in (pa.list_(kind), pa.large_list(kind), pa.list_(kind, 2)):
        found = one(pa.array([[1, 0], [0, 1], [1, 1]], pa.list_(pa.int64())).cast(pa.list_(kind)).cast(array))
        assert found.tolist() == [[1, 0], [0, 1], [1, 1]]
        assert found.dtype == np.dtype(kind.to_pandas_dtype())


def test_lists_of_lists_are_matrices() -> None:
    rows = [[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [0, 0, 1]]]
    inner = pa.list_(pa.int32())

    for kind in (pa.list_(inner), pa.large_list(pa.large_list(pa.int32())), pa.list_(pa.list_(pa.int32(), 3), 2)):
        assert one(pa.array(rows, kind)).tolist() == rows
    assert one(pa.array(rows, pa.list_(pa.large_list(pa.int32())))).tolist() == rows


def test_ragged_lists_are_padded_with_zeros_or_refused_with_both_lengths() -> None:
    ragged = pa.array([[1.5], [2.0, 3.0, 4.0], []])

    assert one(ragged, pad={"x": 4}).tolist() == [[1.5, 0, 0, 0], [2, 3, 4, 0], [0, 0, 0, 0]]
    assert one(pa.array([[True], []]), pad={"x": 2}).tolist() == [[True, False], [False, False]]
    advice = "all rows: pad them with pad={'x': 3}, or make them equal in Spark"
    with pytest.raises(DataError, match=rf"lists of 0 to 3 values, .* {re.escape(advice)}"):
        one(ragged)
    with pytest.raises(
        DataError, match=re.escape("has a list of 3 values, and pad={'x': 2} is shorter: pass 3 or more")
    ):
        one(ragged, pad={"x": 2})
    with pytest.raises(DataError, match=r"lists of 1 to 2 values, .* all rows: make them equal in Spark$"):
        one(pa.array([[[1, 2]], [[3]]]))


def test_vectors_of_spark_are_float32_dense_and_sparse_alike() -> None:
    rows = [dense(1, 2.5, 3), sparse(3, i1=7.0), sparse(3), sparse(3, i0=1.0, i2=2.0), dense(0, 0, 9)]
    wanted = [[1, 2.5, 3], [0, 7, 0], [0, 0, 0], [1, 0, 2], [0, 0, 9]]

    for picked in ([0, 4], [1, 2, 3], [0, 1, 2, 3, 4], [4, 3, 0]):
        found = one(pa.array([rows[each] for each in picked], VECTOR))
        assert found.tolist() == [wanted[each] for each in picked]
        assert found.dtype == np.float32
    assert one(pa.array([dense(1), sparse(3, i2=5.0)], VECTOR), pad={"x": 3}).tolist() == [[1, 0, 0], [0, 0, 5]]
    with pytest.raises(DataError, match="has lists of 1 to 3 values"):
        one(pa.array([dense(1), sparse(3)], VECTOR))
    with pytest.raises(DataError, match=r"column 'x' has 2 nulls"):
        one(pa.array([None, dense(1), None], VECTOR))
    with pytest.raises(
        DataError, match=r"sparse vector of 1,000,000 entries, 4,000,000 bytes a row .*reduce it in Spark"
    ):
        one(pa.array([sparse(1_000_000, i5=1.0)], VECTOR))


def test_structs_become_columns_with_dots_and_their_nulls_count() -> None:
    kind = pa.struct([("b", pa.int32()), ("c", pa.struct([("d", pa.list_(pa.float32())), ("v", VECTOR)]))])
    rows = [{"b": 1, "c": {"d": [1, 2], "v": dense(5)}}, {"b": 2, "c": {"d": [3, 4], "v": sparse(1)}}]
    batch = pa.record_batch([pa.array(rows, kind), pa.array([7, 8])], names=["a", "y"])

    assert {name: each.tolist() for name, each in converted(batch).items()} == {
        "a.b": [1, 2],
        "a.c.d": [[1, 2], [3, 4]],
        "a.c.v": [[5], [0]],
        "y": [7, 8],
    }
    assert list(converted(batch, names=["y", "a.b"])) == ["y", "a.b"]
    for holes in ([rows[0], None], [rows[0], {"b": 1, "c": None}]):
        with pytest.raises(
            DataError, match=r"column 'a.c.d' has 1 null, column 'a.c.v' has 1 null: a tensor has no nulls"
        ):
            converted(pa.record_batch([pa.array(holes, kind)], names=["a"]))


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None, 3]),
        pa.array([True, None, None]).slice(0, 2),
        pa.array(["a", None]),
        pa.array([b"a", None]),
        pa.array([[1], None]),
        pa.array([[1], [None]]),
        pa.array([[[1]], [[None]]]),
        pa.array([[[1]], [None]]),
    ],
)
def test_nulls_anywhere_are_an_error_with_the_next_step(array: pa.Array) -> None:
    for pad in (
        ({}, {"x": 2}) if pa.types.is_list(array.type) and not pa.types.is_list(array.type.value_type) else ({},)
    ):
        with pytest.raises(DataError, match=re.escape("data['train'], partition 3: column 'x' has 1 null: a tensor has "
                                                      "no nulls; fill them (df.fillna), drop them")):  # fmt: skip
            converted(pa.record_batch([array], names=["x"]), pad)


REFUSED = {
    "price": (pa.decimal128(10, 2), "select cast(price as double), which rounds beyond 15 digits"),
    "day": (pa.date32(), "select unix_date(day)"),
    "at": (pa.timestamp("us", "UTC"), "select unix_micros(at)"),
    "local": (pa.timestamp("us"), "select unix_micros(local)"),
    "clock": (pa.time64("us"), "a tensor has no times"),
    "length": (pa.duration("us"), "a tensor has no intervals"),
    "tags": (pa.map_(pa.string(), pa.int32()), "such as tags['key']"),
    "nothing": (pa.null(), "it holds only nulls; drop it"),
    "matrix": (MATRIX, "select their numbers as an array"),
    "words": (pa.list_(pa.string()), "index or explode it"),
    "deep": (pa.list_(pa.list_(pa.list_(pa.int32()))), "index or explode it"),
    "structs": (pa.list_(pa.struct([("a", pa.int32())])), "index or explode it"),
}


def test_all_types_without_a_rule_are_refused_in_one_message() -> None:
    schema = pa.schema([("fine", pa.int32()), *((name, kind) for name, (kind, _) in REFUSED.items())])

    with pytest.raises(DataError) as caught:
        columns_of(schema, "data['train']")
    first, *lines = str(caught.value).splitlines()
    assert first == "data['train'] has columns that cannot become tensors:"
    assert len(lines) == len(REFUSED)
    for line, (name, (_, advice)) in zip(lines, REFUSED.items(), strict=True):
        assert line.startswith(f"    column {name!r} is a")
        assert line.endswith(advice) or advice in line
    assert [each.name for each in columns_of(schema, "data['train']", ["fine"])] == ["fine"]


def test_a_variant_is_refused() -> None:
    fields = [pa.field("value", pa.binary(), metadata={"variant": "true"}), pa.field("metadata", pa.binary())]

    with pytest.raises(DataError, match=r"column 'v' is a struct.*select their numbers as an array"):
        columns_of(pa.schema([("v", pa.struct(fields))]), "data['train']")


def test_names_are_checked_all_at_once_with_suggestions() -> None:
    schema = pa.schema([("age", pa.int32()), ("label", pa.int32()), ("image", pa.binary())])
    columns = columns_of(schema, "data['train']")

    message = (
        "data['train'] has no column 'ages', did you mean 'age'? and no column 'lable', did you mean 'label'?; its "
        "columns are 'age', 'label', 'image'"
    )
    for attempt in (
        lambda: columns_of(schema, "data['train']", ["ages", "lable", "image"]),
        lambda: chosen(columns, ["image", "ages", "lable"], "data['train']"),
    ):
        with pytest.raises(DataError) as caught:
            attempt()
        assert re.sub(r"\W+", " ", str(caught.value)) == re.sub(r"\W+", " ", message)
    with pytest.raises(DataError, match="has no columns: select at least one"):
        columns_of(pa.schema([]), "data['train']")
    with pytest.raises(DataError, match=r"column 'a\.b' exists twice once structs are flattened"):
        columns_of(pa.schema([("a.b", pa.int8()), ("a", pa.struct([("b", pa.int8())]))]), "x")


def test_pad_is_for_lists_of_numbers() -> None:
    columns = columns_of(
        pa.schema([("x", pa.list_(pa.int8())), ("m", pa.list_(pa.list_(pa.int8()))), ("y", pa.int8()), ("v", VECTOR)]),
        "data['train']",
    )

    check_pad(columns, {"x": 2, "v": 3}, "data['train']")
    for pad, words in (
        ({"y": 2}, "pad of data['train']: column 'y' is int8, and only lists are padded"),
        ({"m": 2}, "column 'm' is list<list<int8>>, and only lists of numbers are padded"),
        ({"xx": 2}, "pad of data['train'] has no column 'xx'"),
    ):
        with pytest.raises(DataError, match=re.escape(words)):
            check_pad(columns, pad, "data['train']")


def test_datasets_of_a_run_must_fit_together() -> None:
    def of(**types: pa.DataType) -> tuple[Column, ...]:
        return columns_of(pa.schema(types.items()), "x")

    check_alike({"train": of(x=pa.float32(), id=pa.int64()), "validation": of(x=pa.float32())})
    with pytest.raises(DataError) as caught:
        check_alike(
            {
                "train": of(x=pa.float32(), y=pa.int32(), z=pa.string()),
                "validation": of(x=pa.float64(), y=pa.int64(), z=pa.string()),
            }
        )
    assert "data['train'] and data['validation'] differ in column 'x': float and double; cast one" in str(caught.value)
    assert "column 'y': int32 and int64" in str(caught.value)


def test_lengths_of_parts_are_those_of_all_rows() -> None:
    batches = [pa.record_batch([pa.array(rows)], names=["x"]) for rows in ([[1, 2]], [[1, 2], [3, 4]], [[5]])]
    columns = columns_of(batches[0].schema, "x")
    known = joined(check_values(batches[0], columns, "x"), check_values(batches[1], columns, "x"))

    assert shaped(columns, known, "x")[0].shape == (2,)
    with pytest.raises(DataError, match=r"lists of 1 to 2 values"):
        shaped(columns, joined(known, check_values(batches[2], columns, "x")), "x")


@pytest.mark.parametrize(
    ("rows", "pad"),
    [
        ([sparse(1000, **{f"i{row}": row + 1.0}) if row % 3 else dense(*range(1000)) for row in range(100)], {}),
        ([dense(1.0, row) if row % 2 else sparse(row, i0=2.0) for row in range(1, 90)], {"x": 1000}),
        ([[1.0, 2.0], [3.0], []] * 30, {"x": 1000}),
        ([sparse(100_000, i5=1.0), sparse(3, i1=1.0)] * 3, {}),
    ],
    ids=["vectors", "padded vectors", "padded lists", "rows wider than a part"],
)
def test_columns_that_grow_are_filled_in_parts_of_bounded_size(rows: list[Any], pad: dict[str, int]) -> None:
    kind = VECTOR if isinstance(rows[0], dict) else pa.list_(pa.float64())
    batch = pa.RecordBatch.from_arrays([pa.array(rows, kind), pa.array(range(len(rows)))], ["x", "id"]).slice(1)
    columns, most = columns_of(batch.schema, ""), 40_000
    parts = list(plain_batches(batch, columns, pad, "", most))

    assert max(each.nbytes for each in parts) < most + 1000 or {len(each) for each in parts} == {1}
    assert len(parts) > 1
    assert pa.Table.from_batches(parts).to_pylist() == plain_batch(batch, columns, pad, "").to_pylist()


def test_columns_that_do_not_grow_stay_whole() -> None:
    batch = pa.RecordBatch.from_pydict({"x": [[1.0] * 1000] * 100, "y": range(100)})
    assert [len(each) for each in plain_batches(batch, columns_of(batch.schema, ""), {}, "", 10_000)] == [100]
