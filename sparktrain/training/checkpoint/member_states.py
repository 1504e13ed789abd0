"""What each member of a gang has of its own while all train one model, such as statistics of layers, and metrics."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparktrain.training.checkpoint.saver import state_module
from sparktrain.training.checkpoint.tensor_files import Array
from sparktrain.training.collectives.ring import Ring


def gathered(ring: Ring, parts: Sequence[Any], call: str) -> list[dict[str, Array]]:
    """The own arrays of all members, by rank and by their names; empty where they have none. `call` is for errors.

    All members call it after the same step; blocks until they do. Raises RingError.
    """
    own_arrays = state_module(parts, call).own(parts) if parts and ring.size > 1 else {}
    if not own_arrays:
        return []
    content = np.concatenate([np.ravel(array).view(np.uint8) for array in own_arrays.values()])
    rows = ring.allgather_array(content[np.newaxis], name="member_states")
    return [_split(row, own_arrays) for row in rows]


def _split(row: Array, like: Mapping[str, Array]) -> dict[str, Array]:
    ends = np.cumsum([array.nbytes for array in like.values()])
    return {
        name: part.copy().view(array.dtype).reshape(array.shape)
        for part, (name, array) in zip(np.split(row, ends[:-1]), like.items(), strict=True)
    }
