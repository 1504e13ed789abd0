"""What `horovod.keras` and `horovod.tensorflow.keras` have in a training function, beside `horovod.tensorflow`."""

from collections.abc import Mapping
from os import PathLike
from typing import Any

import horovod.tensorflow as hvd
import keras

from sparktrain.errors import SpecError
from sparktrain.training.frameworks.tensorflow.horovod_names import elastic
from sparktrain.training.frameworks.tensorflow.horovod_names import keras_callbacks as callbacks
from sparktrain.training.frameworks.tensorflow.horovod_names.import_hook import current_ring
from sparktrain.training.frameworks.tensorflow.horovod_names.tensorflow_names import (
    DistributedOptimizer,
    broadcast_global_variables,
    from_chief,
    init,
    shutdown,
)
from sparktrain.training.frameworks.tensorflow.optimizers.tensorflow_values import VALUES

_ELSEWHERE = {
    "PartialDistributedOptimizer": "ctx.distribute(optimizer) averages all gradients",
}
"""What a gang does in place of a name."""


def allreduce(value: Any, name: str | None = None, average: bool = True, **options: Any) -> Any:
    """The mean, or the sum, of a value over all members, as `ctx.allreduce`. Blocks until all members call it."""
    if options.get("op") is not None:
        average = {hvd.Average: True, hvd.Sum: False}[_checked_op(options["op"])]
    return VALUES.allreduce(current_ring("hvd.allreduce()"), value, average=average)


def allgather(value: Any, name: str | None = None, **options: Any) -> Any:
    """The arrays of all members by rank, as `ctx.allgather`. Blocks until all members call it."""
    return VALUES.allgather(current_ring("hvd.allgather()"), value)


def broadcast(value: Any, root_rank: int, name: str | None = None, **options: Any) -> Any:
    """The chief's value, as `ctx.broadcast`. Blocks until all members call it. Raises SpecError for another root."""
    from_chief(root_rank, "broadcast")
    return VALUES.broadcast(current_ring("hvd.broadcast()"), value)


def load_model(
    filepath: str | PathLike[str],
    custom_optimizers: object = None,
    custom_objects: Mapping[str, Any] | None = None,
    compression: Any = None,
    **options: Any,
) -> Any:
    """Load a Keras model and let its optimizer average gradients over all members. Blocks on the file.

    `custom_optimizers` are needed no more: Keras saves the optimizer's own class.
    """
    model = keras.models.load_model(filepath, custom_objects=custom_objects)
    if model.optimizer is not None:
        DistributedOptimizer(model.optimizer, compression=compression, **options)
        model.jit_compile = False
    return model


def _checked_op(op: Any) -> Any:
    if op not in (hvd.Average, hvd.Sum):
        raise SpecError("hvd.allreduce: op is neither hvd.Average nor hvd.Sum; use horovod.tensorflow's on tensors")
    return op


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        raise SpecError(f"hvd.{name} does not work with Keras 3: {_ELSEWHERE[name]}")
    return getattr(hvd, name)


__all__ = [
    "DistributedOptimizer",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "callbacks",
    "elastic",
    "init",
    "load_model",
    "shutdown",
]
