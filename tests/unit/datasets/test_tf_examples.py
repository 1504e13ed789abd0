"""Columns out of `tf.train.Example`; tests/training/test_tfrecord_files.py has the records of TensorFlow itself."""

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain import data
from sparktrain.config.data_sources import FileSource
from sparktrain.datasets.tf_examples import examples
from sparktrain.datasets.tfrecord import framed
from sparktrain.errors import DataError
from sparktrain.store.base import Store
from sparktrain.store.localfs import LocalStore
from tests.unit.datasets.data_files import planned, put, shapes


def varint(number: int) -> bytes:
    number %= 2**64
    found = b""
    while number >= 0x80:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def feature(values: Any, packed: bool = True) -> bytes:
    """A `tf.train.Feature` of these values, by the type of the first."""
    if isinstance(values[0], bytes):
        return field(1, b"".join(field(1, each) for each in values))
    if isinstance(values[0], float):
        if not packed:
            return field(2, b"".join(b"\x0d" + struct.pack("<f", each) for each in values))
        return field(2, field(1, struct.pack(f"<{len(values)}f", *values)))
    if not packed:
        return field(3, b"".join(b"\x08" + varint(each) for each in values))
    return field(3, field(1, b"".join(map(varint, values))))


def example(packed: bool = True, **features: Any) -> bytes:
    entries = (field(1, name.encode()) + field(2, feature(values, packed)) for name, values in features.items())
    return field(1, b"".join(field(1, each) for each in entries))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return LocalStore(tmp_path)


def source(store: Store, records: list[bytes], features: Any, **options: Any) -> FileSource:
    put(store, "in/a", b"".join(map(framed, records)))
    return data.tfrecord(store.where("in"), features=features, **options)


@pytest.mark.parametrize("packed", [True, False])
def test_features_become_columns(packed: bool, store: Store) -> None:
    records = [
        example(packed, label=[each - 2], x=[each / 2, -1.0], name=[b"n%d" % each], unused=[1]) for each in range(5)
    ]
    records[2] = example(packed, name=[b"n2"], x=[1.0, -1.0], label=[0])
    manifest, rows = planned(source(store, records, {"x": ("float32", 2), "label": "int64", "name": "bytes"}))
    assert shapes(manifest) == {"x": (2,), "label": (), "name": (2,)}
    assert [each.dtype for each in manifest.columns] == ["float32", "int64", "uint8"]
    assert rows.to_pylist() == [{"x": [each / 2, -1.0], "label": each - 2, "name": b"n%d" % each} for each in range(5)]


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=9), min_size=1, max_size=20))
def test_all_integers_come_back(rows: list[list[int]]) -> None:
    found = examples(pa.array([example(n=each) for each in rows]), {"n": "int64[]"})
    assert found["n"].to_pylist() == rows


@given(
    st.lists(st.tuples(st.integers(-5, 300), st.sampled_from([b"a", b"bb"]), st.booleans()), min_size=1, max_size=80)
)
def test_records_of_mixed_layouts_come_back_in_order(rows: list[tuple[int, bytes, bool]]) -> None:
    records = []
    for number, name, turned in rows:
        features = {"n": [number, 1], "name": [name], "x": [number / 2]}
        records.append(example(**dict(reversed(features.items())) if turned else features))
    found = examples(pa.array(records), {"x": "float32", "n": "int64[2]", "name": "bytes"})
    assert found.to_pylist() == [{"x": number / 2, "n": [number, 1], "name": name} for number, name, _ in rows]
    found.validate(full=True)


def test_lists_of_several_lengths_are_padded(store: Store) -> None:
    records = [example(ids=[1, 2, 3]), example(ids=[4])]
    manifest, rows = planned(source(store, records, {"ids": ("int64", None)}, pad={"ids": 4}))
    assert rows["ids"].to_pylist() == [[1, 2, 3, 0], [4, 0, 0, 0]]
    assert shapes(manifest) == {"ids": (4,)}


@pytest.mark.parametrize(
    ("features", "text"),
    [
        ({"y": "int64"}, "row group 0: record 0 has no feature 'y'; its features are 'n', 'x'"),
        ({"x": "int64"}, r"record 0: feature 'x' has float32 values, .* asks for int64: write 'float32'"),
        ({"x": ("float32", 3)}, r"feature 'x' has 2 values, and features= asks for 3: .*\('float32', None\) and pad="),
        ({"n": "int64"}, "record 1: feature 'n' has 0 values, and features= asks for 1"),
    ],
)
def test_features_that_do_not_fit_are_refused(features: Any, text: str, store: Store) -> None:
    unset = field(1, field(1, field(1, b"n") + field(2, b"")))
    with pytest.raises(DataError, match=text):
        planned(source(store, [example(n=[1], x=[1.0, 2.0]), unset], features))


def test_records_that_are_no_examples_are_corrupt(store: Store) -> None:
    with pytest.raises(DataError, match=r"row group 0: the bytes are corrupt: record 0 is no tf.train.Example"):
        planned(source(store, [b"no example"], {"x": "int64"}))


@given(st.binary(max_size=30))
def test_any_bytes_are_an_example_or_refused(record: bytes) -> None:
    with pytest.raises(DataError):
        examples(pa.array([record]), {"a long name that is not in there": "int64"})
