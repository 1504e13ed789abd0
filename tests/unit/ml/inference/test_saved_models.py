"""SavedModels without TensorFlow: signatures from bytes, files with their digest, and outputs as columns."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparktrain.errors import DataError, MissingFileError, SpecError
from sparktrain.ml.inference.model_signature import TensorField
from sparktrain.ml.inference.saved_model_files import saved_model_at
from sparktrain.ml.inference.saved_model_signature import graphs_in, signature_of
from sparktrain.ml.inference.saved_model_task import check_new_names, column_type, output_column


def field(number: int, content: bytes | int) -> bytes:
    """A field of a protobuf message."""
    if isinstance(content, int):
        return bytes([number << 3]) + varint(content % 2**64)
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])


def entry(name: str, content: bytes) -> bytes:
    return field(1, name.encode()) + field(2, content)


def tensor(dtype: int, *sizes: int, known: bool = True) -> bytes:
    shape = b"".join(field(2, field(1, each)) for each in sizes) + (b"" if known else field(3, 1))
    return field(1, b"name:0") + field(2, dtype) + field(3, shape)


def graph(tags: tuple[str, ...], inputs: dict[str, bytes], outputs: dict[str, bytes]) -> bytes:
    made = b"".join(field(1, entry(name, each)) for name, each in inputs.items())
    made += b"".join(field(2, entry(name, each)) for name, each in outputs.items())
    signatures = field(5, entry("serving_default", made)) + field(5, entry("__saved_model_init_op", b""))
    return field(2, field(1, b"".join(field(4, each.encode()) for each in tags)) + signatures)


ONE = graph(
    ("serve",),
    {"x": tensor(1, -1, 28, -1), "b": tensor(9, -1)},
    {"y": tensor(3, -1, 300), "unknown": tensor(1, known=False), "scalar": tensor(1), "odd": tensor(21, -1)},
)


def test_a_signature_is_read_from_its_bytes() -> None:
    found = signature_of(graphs_in(ONE, "m"), "serve", None, "m")
    assert (found.tags, found.key) == (("serve",), "serving_default")
    read = found.model_signature(["y"])
    assert read.inputs == (TensorField("b", (), "int64"), TensorField("x", (28, None), "float32"))
    assert read.outputs == (TensorField("y", (300,), "int32"),)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("unknown", r"output 'unknown' of signature 'serving_default' of m has no row .* \(shape unknown\)"),
        ("scalar", "output 'scalar' of .* has no row for each row of the data"),
        ("odd", r"output 'odd' of .* is no plain tensor \(type 21\)"),
    ],
)
def test_outputs_without_rows_are_refused_where_they_are_asked_for(name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        signature_of(graphs_in(ONE, "m"), None, None, "m").model_signature([name])


def test_a_graph_is_chosen_by_its_tags() -> None:
    two = graphs_in(ONE + graph(("serve", "tpu"), {"z": tensor(1, -1)}, {}), "m")
    assert list(signature_of(two, " tpu, serve", None, "m").inputs) == ["z"]
    for tags in (None, "tpu"):
        with pytest.raises(SpecError, match=r"has the graphs 'serve', 'serve,tpu': pass one of these"):
            signature_of(two, tags, None, "m")
    with pytest.raises(SpecError, match=r"has the signatures 'serving_default'; did you mean 'serving_default'\?"):
        signature_of(two, "serve", "serving", "m")


@pytest.mark.parametrize("content", [b"no", ONE[:50], b"\x12\x02\xff\xff"])
def test_other_bytes_are_no_model(content: bytes) -> None:
    with pytest.raises(DataError, match="m is no SavedModel of TensorFlow"):
        graphs_in(content, "m")


def test_a_file_without_a_graph_is_no_model() -> None:
    with pytest.raises(DataError, match="m has no graph"):
        graphs_in(field(1, 1), "m")


def test_files_are_fetched_as_the_driver_has_found_them(tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "variables").mkdir(parents=True)
    (model / "saved_model.pb").write_bytes(ONE)
    (model / "variables" / "data").write_bytes(b"\1" * 5_000_000)
    found, content = saved_model_at(str(model))
    assert content == ONE
    assert found == saved_model_at(f"file://{model}")[0].__class__(str(model), found.paths, found.sha256)
    place = tmp_path / "place"
    place.mkdir()
    (place / "of-a-killed-process").touch()
    found._fetch_to(place)
    assert sorted(each.relative_to(place).as_posix() for each in place.rglob("*") if each.is_file()) == list(
        found.paths
    )

    (model / "variables" / "data").write_bytes(b"\2" * 5_000_000)
    with pytest.raises(DataError, match="has changed since the call that predicts with it"):
        found._fetch_to(place)
    assert not place.exists()
    with pytest.raises(MissingFileError, match=rf"no SavedModel .* at {tmp_path}; there is one in {model}: pass that"):
        saved_model_at(str(tmp_path))
    with pytest.raises(MissingFileError, match=r"compat\.export_saved_model\(model, export_dir, is_chief\)"):
        saved_model_at(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("values", "shape", "dtype", "kind", "rows"),
    [
        (np.array([1.5, 2.5], np.float32), (), "float32", "double", [1.5, 2.5]),
        (np.array([[1], [2]], np.uint8), (1,), "uint8", "list<item: int64>", [[1], [2]]),
        (np.zeros((2, 0)), (0,), "float64", "list<item: double>", [[], []]),
        (np.zeros((0, 3), np.float16), (3,), "float16", "list<item: double>", []),
        (np.array([True, False]), (), "bool", "bool", [True, False]),
        (np.array([b"a", b"b\0c"], object), (), "string", "binary", [b"a", b"b\0c"]),
        (np.ones((1, 2, 2), int), (2, None), "int64", "list<item: list<item: int64>>", [[[1, 1], [1, 1]]]),
    ],
)  # fmt: skip
def test_outputs_become_the_types_of_python(
    values: Any, shape: tuple[int | None, ...], dtype: str, kind: str, rows: list[Any]
) -> None:
    column = TensorField("y", shape, dtype)
    assert str(column_type(column)) == kind
    made = output_column(values, column)
    assert made.type == column_type(column)
    assert made.to_pylist() == rows


def test_a_column_is_there_once() -> None:
    check_new_names(["a", "b"], ["c"], "df")
    with pytest.raises(DataError, match="df would have two columns 'C': give the output another name"):
        check_new_names(["C"], ["c"], "df")
    assert pa.types.is_float64(column_type(TensorField("y", (), "bfloat16")))
