"""Leaves the shares of members whole under MultiWorkerMirroredStrategy.

TensorFlow takes the batches of a dataset for those of all members together, and divides each by their number, also of a
dataset that it does not shard. Of its share, a member of two would train on half batches: in twice the steps, or, where
Keras knows the number of batches, on half of its rows.
"""

import functools
from typing import Any

import tensorflow as tf

from sparktrain.errors import StrategyError
from sparktrain.training.frameworks.tensorflow.data import pipeline


def keep_whole(strategy: Any) -> None:
    """Have `strategy`, of several members, give each member the batches of its share as they are.

    Keras's methods and loops of the user's own distribute datasets by the same call. Other datasets stay TensorFlow's.
    """
    distribute = strategy.experimental_distribute_dataset

    @functools.wraps(distribute)
    def distributed(dataset: Any, options: Any = None) -> Any:
        if not pipeline.is_share(dataset):
            return distribute(dataset, options)
        if (devices := len(strategy.extended.worker_devices)) > 1:
            raise StrategyError(
                f"ctx.dataset, ctx.stream and ctx.shard give a member whole batches, and it has {devices} devices, "
                "among which strategy 'multi_worker_mirrored' does not divide them: start a member for each device "
                "(gpus=1), or pass the whole data to fit, without ctx.shard"
            )
        return strategy.distribute_datasets_from_function(lambda _: dataset, options)

    strategy.experimental_distribute_dataset = distributed


def batch_like(dataset: Any) -> Any | None:
    """A batch of one row of zeros as `dataset` gives them; None for other data than shares, and for unknown shapes.

    To build a model from: a batch that is read for that takes rows of a stream, and a pass of a dataset.
    """
    if not pipeline.is_share(dataset):
        return None
    leaves = tf.nest.flatten(dataset.element_spec)
    if not all(isinstance(leaf, tf.TensorSpec) and leaf.shape[1:].is_fully_defined() for leaf in leaves):
        return None
    return tf.nest.map_structure(lambda spec: tf.zeros([1, *spec.shape[1:]], spec.dtype), dataset.element_spec)
