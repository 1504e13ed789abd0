"""`ctx.distribute`: makes an optimizer of Keras 3 train with all members of a gang."""

import importlib
from typing import Any

from sparktrain.config.param_values import shown
from sparktrain.errors import SpecError
from sparktrain.training.collectives.ring import Ring
from sparktrain.training.frameworks.keras.distributed_apply import is_distributed
from sparktrain.training.frameworks.keras.keras_framework import check_optimizer

_COMPRESSIONS = ("none", "fp16", "bf16")


def distribute(optimizer: Any, ring: Ring, *, compression: str = "none") -> Any:
    """Make `optimizer` average gradients over all members before it applies them; returns `optimizer` itself.

    It keeps its state and its class: a saved one loads as the plain optimizer, without this package. Clipping acts on
    the averaged gradients. With `gradient_accumulation_steps` each call averages its gradients, not only the last one:
    the accumulators stay equal on all members, and a checkpoint between two updates is exact. In a ring of one nothing
    changes. Where the ring has `local_steps`, `optimizer` applies the member's own gradients, and averages the weights
    after so many calls (see `sparktrain.training.frameworks.tensorflow.optimizers.local_steps`). The ring has tensors
    of the framework that Keras runs on.

    `compression` is the type in which gradients are sent: "none" for their own, "fp16" or "bf16" (which saves nothing
    with Horovod: it has no sums of that type); Keras on JAX takes "none" alone. On TensorFlow compile the model with
    `jit_compile=False`: XLA cannot compile its collectives. Does not block. Raises SpecError for anything but a Keras
    optimizer, for one that is distributed already, and for an unknown compression.
    """
    if compression not in _COMPRESSIONS:
        raise SpecError(f"compression ({shown(compression)}) must be one of {', '.join(map(repr, _COMPRESSIONS))}")
    check_optimizer(optimizer, "ctx.distribute()")
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if is_distributed(optimizer) or is_distributed(inner):
        raise SpecError(
            f"the optimizer {optimizer.name!r} is distributed already; distribute each optimizer once, "
            "and before it is compiled into a model"
        )
    if ring.size == 1 and ring.ps_model is None and ring.local_steps is None:
        return optimizer  # also where Keras runs on another backend than TensorFlow
    return importlib.import_module(ring.keras_averaging).average_by(ring, optimizer, compression)
