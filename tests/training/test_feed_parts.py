"""Batches of `to_tf`: which tensors the arguments select, and what they hold."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from sparktrain.cluster.dataframes.frame_writer import WriteTask, write_part
from sparktrain.config.store_address import StoreAddress
from sparktrain.datasets.arrow_columns import columns_of
from sparktrain.datasets.manifest import DataRef, Manifest, MemberData
from sparktrain.datasets.values import shaped
from sparktrain.store.url import open_store
from sparktrain.training.data.open_data import OpenData
from sparktrain.training.data.position import Position
from sparktrain.training.data.training_data import TrainingData

ROWS = 10
TABLE = pa.table(
    {
        "count": pa.array([2**40 + 1 + each for each in range(ROWS)], pa.int64()),
        "price": pa.array(np.arange(ROWS) / 3),
        "seen": pa.array([each % 2 == 0 for each in range(ROWS)]),
        "word": pa.array([f"w{each}" for each in range(ROWS)]),
        "label": pa.array(range(ROWS), pa.int32()),
        "weight": pa.array(np.arange(ROWS) / 2, pa.float32()),
    }
)


@pytest.fixture
def data(tmp_path: Path) -> TrainingData:
    columns = columns_of(TABLE.schema, "data")
    address = StoreAddress(str(tmp_path))
    part = write_part(WriteTask(address, "rows", columns, "data"), iter(TABLE.to_batches()), 0, "table")
    columns = shaped(columns, part.lengths, "data")
    manifest = Manifest(name="rows", format="groups", columns=columns, files=part.files, schema=part.schema)
    open_store(address).put_if_absent("rows/manifest.json", manifest.encode())
    sets = {"rows": DataRef(address, "rows/manifest.json", manifest.digest)}
    return OpenData(MemberData(sets), 0, 1, 0, Position()).get("rows")


def batches(feed: Any) -> list[Any]:
    return list(feed.as_numpy_iterator())


def test_stacked_features_are_one_tensor_of_floats_in_the_order_of_their_names(data: TrainingData) -> None:
    feed = data.to_tf(
        batch_size=4, feature_columns=["seen", "count", "price", "label"], label_columns="label", stack=True
    )
    expected = np.stack([TABLE[each].to_numpy() for each in ("seen", "count", "price", "label")], axis=1)

    assert feed.element_spec == (tf.TensorSpec((None, 4), tf.float32), tf.TensorSpec((None,), tf.int32))
    assert [len(x) for x, _ in batches(feed)] == [4, 4, 2]
    assert np.array_equal(np.concatenate([x for x, _ in batches(feed)]), expected.astype(np.float32))
    assert [y.tolist() for _, y in batches(feed)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_stacked_features_alone_are_a_tensor(data: TrainingData) -> None:
    feed = data.to_tf(batch_size=5, feature_columns=["price", "weight"], stack=True)

    assert feed.element_spec == tf.TensorSpec((None, 2), tf.float32)
    assert np.allclose(np.concatenate(batches(feed))[:, 0], TABLE["price"].to_numpy())


def test_columns_by_name_keep_their_types_but_doubles(data: TrainingData) -> None:
    feed = data.to_tf(batch_size=10, feature_columns=["count", "price", "seen", "word"], label_columns="label")
    [(x, _)] = batches(feed)

    assert {name: each.dtype for name, each in x.items()} == {
        "count": np.int64, "price": np.float32, "seen": np.bool_, "word": np.dtype(object)
    }  # fmt: skip
    assert x["count"].tolist() == TABLE["count"].to_pylist()
    assert x["word"].tolist() == [each.encode() for each in TABLE["word"].to_pylist()]


@pytest.mark.parametrize("stack", [False, True])
def test_padded_rows_have_no_weight_beside_the_weights_of_a_column(data: TrainingData, stack: bool) -> None:
    feed = data.to_tf(
        batch_size=4, feature_columns=["price", "count"], label_columns=["label"], weight_column="weight",
        uneven="pad", stack=stack,
    )  # fmt: skip
    y = np.concatenate([y["label"] for _, y, _ in batches(feed)])
    w = np.concatenate([w for _, _, w in batches(feed)])

    assert y[:ROWS].tolist() == list(range(ROWS))
    assert w.tolist()[:ROWS] == TABLE["weight"].to_pylist()
    assert not w[ROWS:].any()


def test_weights_without_labels_keep_their_place(data: TrainingData) -> None:
    feed = data.to_tf(batch_size=10, feature_columns="price", weight_column="weight")
    [(x, y, w)] = list(feed)

    assert y is None
    assert (x.shape, w.numpy().tolist()) == ((10,), TABLE["weight"].to_pylist())
