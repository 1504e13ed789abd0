"""Objects as rows of bytes: arrays are views of them, and a changed pickle does not run."""

from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

from sparktrain.datasets import shared_objects
from sparktrain.datasets.shared_objects import COLUMN, ObjectIndex, object_in, object_table
from sparktrain.errors import DataError


def content_of(table: pa.Table) -> bytearray:
    return bytearray(b"".join(table[COLUMN].to_pylist()))


def through(value: Any) -> Any:
    table, index = object_table(value)
    return object_in(memoryview(bytes(content_of(table))), index)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4),
        np.asfortranarray(np.arange(12, dtype=np.int8).reshape(3, 4)),
        np.array(["a", "bc"]),
        np.array([1, "a", None], dtype=object),
        np.zeros((0, 3)),
    ],
)
def test_an_array_keeps_its_type_and_its_order_of_axes(array: Any) -> None:
    back = through(array)
    assert back.dtype == array.dtype
    assert back.flags.f_contiguous == array.flags.f_contiguous
    np.testing.assert_array_equal(back, array)


def test_sparse_matrices_and_data_frames_keep_what_they_are() -> None:
    matrix = sp.csr_matrix(np.eye(3))
    frame = pd.DataFrame({"a": [1.5, 2.5], "b": pd.Categorical(["x", "y"]), "c": ["u", None]}, index=[7, 9])
    back = through({"matrix": matrix, "frame": frame})
    assert (back["matrix"] != matrix).nnz == 0
    pd.testing.assert_frame_equal(back["frame"], frame)


def test_arrays_are_aligned_views_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_objects, "ROW_BYTES", 128)
    one = np.arange(100.0)
    two = np.arange(7, dtype=np.uint8)
    table, index = object_table([one, two])
    assert {len(row) for row in table[COLUMN].to_pylist()} == {128}
    content = bytes(content_of(table))
    back = object_in(memoryview(content), index)
    address = np.frombuffer(content, np.uint8).__array_interface__["data"][0]
    offsets = [array.__array_interface__["data"][0] - address for array in back]
    assert [offset % 64 for offset in offsets] == [0, 0]
    assert all(0 <= offset < len(content) for offset in offsets)
    assert not back[0].flags.writeable
    np.testing.assert_array_equal(back[0], one)
    np.testing.assert_array_equal(back[1], two)


def test_a_pickle_that_somebody_changed_is_refused_before_it_runs() -> None:
    table, index = object_table({"x": np.ones(3)})
    content = content_of(table)
    content[10] ^= 1
    with pytest.raises(DataError, match=r"SHA-256 of their structure is .* start the search in a new one"):
        object_in(memoryview(content), index)


def test_the_index_travels_as_any_message() -> None:
    _, index = object_table(np.ones(3))
    assert msgspec.json.decode(msgspec.json.encode(index), type=ObjectIndex) == index
