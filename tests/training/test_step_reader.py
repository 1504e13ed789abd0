"""The step of a `fit` that heals has its batch from the graph, and can train it again after an error."""

from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from sparktrain.training.frameworks.tensorflow.healing.step_reader import StepReader

ROWS = 10
BATCH = 4


class Breaking:
    """A step that fails where `broken` is set, and notes what it has trained."""

    def __init__(self) -> None:
        self.traces = 0
        self.broken = tf.Variable(False)
        self.total = tf.Variable(0.0)

    def step(self, batch: Any) -> tf.Tensor:
        self.traces += 1
        part = sum(tf.reduce_sum(tf.cast(each, tf.float32)) for each in tf.nest.flatten(batch, expand_composites=True))
        with tf.control_dependencies([tf.debugging.Assert(~self.broken, ["broken"])]):
            return self.total.assign_add(part)


def rows(**columns: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(columns or tf.range(ROWS)).batch(BATCH)


@pytest.mark.parametrize(
    "dataset",
    [
        rows(),
        rows(x=tf.reshape(tf.range(2 * ROWS), (ROWS, 2)), y=tf.ragged.constant([[1] * count for count in range(ROWS)])),
        rows(x=tf.sparse.from_dense([[0, 1]] * ROWS)),
    ],
    ids=["plain", "ragged", "sparse"],
)
def test_a_batch_is_trained_again_after_an_error_by_the_same_trace(dataset: tf.data.Dataset) -> None:
    breaking = Breaking()
    reader = StepReader(breaking.step, dataset.element_spec)
    iterator = iter(dataset)
    reader.trace(iterator)
    reader.train_next(iterator)
    breaking.broken.assign(True)
    for train in (lambda: reader.train_next(iterator), reader.train_again):
        with pytest.raises(tf.errors.InvalidArgumentError, match="broken"):
            train()
    breaking.broken.assign(False)
    reader.train_again()
    reader.train_next(iterator)
    with pytest.raises(tf.errors.OutOfRangeError):
        reader.train_next(iterator)
    undisturbed = Breaking()
    for batch in dataset:
        undisturbed.step(batch)
    assert float(breaking.total) == float(undisturbed.total)
    assert breaking.traces == 1


def test_a_step_that_is_instantiated_trains_nothing_and_is_traced_once() -> None:
    reads = []

    def no_rows() -> Iterator[int]:
        reads.append("called")
        yield from ()

    empty = tf.data.Dataset.from_generator(no_rows, output_signature=rows().element_spec)
    breaking = Breaking()
    reader = StepReader(breaking.step, rows().element_spec)
    reader.instantiate(iter(empty))
    assert reads == ["called"]
    assert float(breaking.total) == 0.0
    iterator = iter(rows())
    reader.train_next(iterator)
    assert float(breaking.total) == sum(range(BATCH))
    assert breaking.traces == 1


def test_a_batch_that_no_variable_can_hold_is_read_before_the_graph() -> None:
    dataset = tf.data.Dataset.range(3).map(lambda number: (number, tf.experimental.Optional.from_value(number)))

    def step(batch: Any) -> tf.Tensor:
        return batch[0] + batch[1].get_value()

    reader = StepReader(step, dataset.element_spec)
    iterator = iter(dataset)
    trained = [int(reader.train_next(iterator)), int(reader.train_again())]
    next(iterator)
    assert [*trained, int(reader.train_next(iterator))] == [0, 0, 4]
    with pytest.raises(StopIteration):
        reader.train_next(iterator)
