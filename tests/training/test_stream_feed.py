"""Batches of a stream's `to_tf`: which tensors the arguments select, and what they hold in each pass."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from sparktrain.base.clock import SystemClock
from sparktrain.datasets.arrow_columns import columns_of
from sparktrain.errors import DataError
from sparktrain.training.data.stream.epoch_reader import Phase, RowWait
from sparktrain.training.data.stream.feed_queue import Feeder, FeedQueue, PartitionKey
from sparktrain.training.data.stream.feed_reader import FeedReader, alone
from sparktrain.training.data.stream.stream_data import StreamData

ROWS = 10
BATCH = pa.RecordBatch.from_pydict(
    {
        "count": pa.array(range(ROWS), pa.int64()),
        "price": pa.array(np.arange(ROWS) / 4),
        "word": pa.array([f"w{each}" for each in range(ROWS)]),
        "label": pa.array(range(ROWS), pa.int32()),
        "weight": pa.array(np.arange(ROWS) / 2, pa.float32()),
    }
)


@pytest.fixture
def data() -> StreamData:
    """Each epoch has the rows of `BATCH`."""
    queue = FeedQueue("rows")

    def report(epoch: int, phase: Phase) -> None:
        if phase == "asked":
            feeder, key = Feeder(lambda: False), PartitionKey(epoch, 0, 0)
            queue.claim(feeder, key)
            queue.put(feeder, key, BATCH, 0, 0)
            queue.end(epoch)

    reader = FeedReader(queue, report, RowWait(lambda waiting: None, SystemClock()))
    return StreamData("rows", columns_of(BATCH.schema, "data['rows']"), reader, alone, 1)


def batches(feed: Any) -> list[Any]:
    return list(feed.as_numpy_iterator())


def test_stacked_features_are_one_tensor_in_each_pass(data: StreamData) -> None:
    feed = data.to_tf(batch_size=5, feature_columns=["count", "price", "label"], label_columns="label", stack=True)
    assert feed.element_spec == (tf.TensorSpec((5, 3), tf.float32), tf.TensorSpec((5,), tf.int32))
    for _ in range(2):
        found = batches(feed)
        assert [x[:, 1].tolist() for x, _ in found] == [[0, 0.25, 0.5, 0.75, 1], [1.25, 1.5, 1.75, 2, 2.25]]
        assert [y.tolist() for _, y in found] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_columns_by_name_and_one_with_weights(data: StreamData) -> None:
    [(x, y, weight)] = batches(
        data.to_tf(batch_size=7, feature_columns=["word", "price"], label_columns="label", weight_column="weight")
    )
    assert (x["word"][6], x["price"].dtype, y[6], weight[6]) == (b"w6", np.float32, 6, 3.0)


def test_features_alone(data: StreamData) -> None:
    [one] = batches(data.to_tf(batch_size=10, feature_columns="count"))
    assert one.tolist() == list(range(10))
    [named] = batches(data.to_tf(batch_size=10, feature_columns=["count"]))
    assert named["count"].tolist() == list(range(10))


def test_a_label_that_the_stream_lacks_is_refused(data: StreamData) -> None:
    with pytest.raises(DataError, match="did you mean 'label'"):
        data.to_tf(batch_size=5, label_columns="labels")
