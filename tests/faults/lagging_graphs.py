"""Has the sums of gradients in a ring of Horovod pass through a function of a test."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sparktrain.training.frameworks.tensorflow.collectives.horovod_ring import HorovodRing


def pass_sums(end: Callable[[], None]) -> None:
    """Call `end` in each step once its sums are there."""
    sums = HorovodRing._sums

    def passed(*totals: Any) -> Any:
        end()
        return list(totals)

    def late(ring: HorovodRing, tensors: list[tf.Tensor], name: str) -> list[tf.Tensor]:
        if not name.startswith("gradients"):
            return sums(ring, tensors, name)
        types = [tensor.dtype for tensor in tensors]
        totals = tf.py_function(passed, sums(ring, tensors, name), types)
        return [tf.ensure_shape(total, tensor.shape) for total, tensor in zip(totals, tensors, strict=True)]

    HorovodRing._sums = late  # type: ignore[method-assign]
