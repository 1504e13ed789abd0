"""The memory of large variables, and of a step that trains them.

New memory comes from the system page by page. For 1 GB this takes 0.4 to 1.6 s of a core on a virtual machine, where a
copy takes 0.2 s. So a variable gets another value in the memory that it has, and a process that others wait for gets
the memory of its first step beforehand.
"""

import threading
from typing import Any

import numpy as np
import tensorflow as tf

from sparktrain.base.control_groups import available_memory
from sparktrain.base.threads import spawn
from sparktrain.training.checkpoint.tensor_files import Array

_CHUNK_BYTES = 2**22
"""What TensorFlow copies of an array at a time, to memory that it has used before."""
_LARGE_BYTES = 4 * _CHUNK_BYTES
_ROW_BYTES = 2**8
"""The least that one row should have: each costs a call."""

_STEP_COPIES = 3
"""How often a step needs the memory of a variable: for its gradient, the average, and what the optimizer computes."""
_FREE_SHARE = 0.25
"""The most of the free memory that is taken beforehand."""


def make_room(model: Any) -> threading.Thread | None:
    """Have a thread get the memory that a step of the built `model` needs. TensorFlow keeps it for the step.

    None where that is little, where it might be more than there is, or where a GPU trains. Does not block.
    """
    looked_up = {id(layer._embeddings) for layer in model._flatten_layers() if hasattr(layer, "_embeddings")}
    dense = [variable.value for variable in model.trainable_variables if id(variable) not in looked_up]
    sizes = [held.dtype.size * held.shape.num_elements() for held in dense for _ in range(_STEP_COPIES)]
    large = [nbytes for nbytes in sizes if nbytes >= _LARGE_BYTES]
    on_cpu = all("CPU" in held.device for held in dense)
    if not (large and on_cpu and sum(large) <= _FREE_SHARE * available_memory().free_bytes):
        return None

    def fill() -> None:
        with tf.device("/CPU:0"):
            # A tensor each, and all of them at once: of one large tensor the step could use nothing.
            _ = [tf.zeros(nbytes, tf.uint8) for nbytes in large]

    return spawn(fill, "sparktrain-room")


def assign(variable: Any, content: Array) -> None:
    """Assign `content` to a variable of Keras or TensorFlow, in its own memory where that is large and on the CPU.

    A tensor that has been read from the variable keeps its value. Raises ValueError for another shape.
    """
    held = getattr(variable, "value", variable)
    if not _has_room(held, content):
        variable.assign(content)
        return
    rows = max(1, _CHUNK_BYTES * len(content) // content.nbytes)
    for start in range(0, len(content), rows):
        part = content[start : start + rows]
        indices = np.arange(start, start + len(part), dtype=np.int64)
        # It also keeps what others hold of the memory: the first of these operations then moves the variable.
        tf.raw_ops.ResourceScatterUpdate(resource=held.handle, indices=indices, updates=part)
    # The operation has readers copy the variable from now on, which its next step would do.
    tf.raw_ops.DisableCopyOnRead(resource=held.handle)


def _has_room(held: Any, content: Array) -> bool:
    return (
        content.nbytes >= _LARGE_BYTES
        and content.nbytes >= _ROW_BYTES * len(content)
        and content.dtype.kind == "f"
        and type(held).__name__ == "ResourceVariable"
        and "CPU" in held.device
        and (held.dtype.as_numpy_dtype, tuple(held.shape)) == (content.dtype, content.shape)
    )
