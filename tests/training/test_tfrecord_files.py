"""TFRecord files of TensorFlow and of this package are the same."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from sparktrain import data
from sparktrain.datasets.example_encoder import encoded_examples
from sparktrain.datasets.tfrecord import TfRecordWriter
from sparktrain.store.localfs import LocalStore
from tests.unit.datasets.data_files import planned


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_files_of_either_writer_are_read_by_both(compression: str, tmp_path: Path) -> None:
    records = [bytes([each]) * (each * 7 % 50) for each in range(200)]
    with tf.io.TFRecordWriter(str(tmp_path / "theirs"), compression) as writer:
        for each in records:
            writer.write(each)
    file = LocalStore(tmp_path).create("ours")
    ours = TfRecordWriter(file, compression.lower())
    ours.write(records)
    ours.finish()
    file.publish()
    if not compression:
        assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    assert list(tf.data.TFRecordDataset(str(tmp_path / "ours"), compression).as_numpy_iterator()) == records
    assert planned(data.tfrecord(tmp_path / "theirs"))[1]["record"].to_pylist() == records


def test_examples_of_tensorflow_become_columns(tmp_path: Path) -> None:
    def example(number: int) -> bytes:
        features = {
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[number - 3])),
            "x": tf.train.Feature(float_list=tf.train.FloatList(value=[number / 4, -1.5, 1e-30])),
            "big": tf.train.Feature(int64_list=tf.train.Int64List(value=[2**62 + number, -(2**63), 0, 300])),
            "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"n" * number])),
        }
        encoded: bytes = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
        return encoded

    with tf.io.TFRecordWriter(str(tmp_path / "in")) as writer:
        for number in range(20):
            writer.write(example(number))
    features = {"x": ("float32", 3), "label": "int64", "big": ("int64", 4), "name": "bytes"}
    _, rows = planned(data.tfrecord(tmp_path / "in", features=features))  # type: ignore[arg-type]
    parsed = tf.io.parse_example(
        [example(number) for number in range(20)],
        {
            "x": tf.io.FixedLenFeature([3], tf.float32),
            "label": tf.io.FixedLenFeature([], tf.int64),
            "big": tf.io.FixedLenFeature([4], tf.int64),
            "name": tf.io.FixedLenFeature([], tf.string),
        },
    )
    for name, tensor in parsed.items():
        assert rows[name].to_pylist() == tensor.numpy().tolist(), name


def test_tensorflow_reads_the_examples_of_this_package() -> None:
    columns = {
        "label": pa.array([-3, 2**62]),
        "flag": pa.array([True, False]),
        "x": pa.array([[0.25, -1.5], []], pa.list_(pa.float32())),
        "half": pa.array([0.1, 1e30]),
        "name": pa.array(["ä" * 100, ""]),
        "raw": pa.array([b"\xff\x00", b""]),
    }
    found = [
        tf.train.Example.FromString(each) for each in encoded_examples(pa.RecordBatch.from_pydict(columns), "rows")
    ]
    for row, example in enumerate(found):
        feature = example.features.feature
        assert feature["label"].int64_list.value == [columns["label"][row].as_py()]
        assert feature["flag"].int64_list.value == [columns["flag"][row].as_py()]
        assert feature["x"].float_list.value == columns["x"][row].as_py()
        assert feature["half"].float_list.value == [float(np.float32(columns["half"][row].as_py()))]
        assert feature["name"].bytes_list.value == [columns["name"][row].as_py().encode()]
        assert feature["raw"].bytes_list.value == [columns["raw"][row].as_py()]
        assert sorted(feature) == sorted(columns)
