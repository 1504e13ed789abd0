"""What each member of a gang has of its own while all train one model: statistics of layers, metrics, generators."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparktrain.training.checkpoint.process_generators import OWN, packed
from sparktrain.training.checkpoint.tensor_files import Array
from sparktrain.training.checkpoint.training_state import state_module
from sparktrain.training.collectives.ring import Ring


def gathered(ring: Ring, parts: Sequence[Any], call: str) -> list[dict[str, Array]]:
    """The own arrays of all members, by rank and by their names; empty for a member alone. `call` is for errors.

    They are those of the framework's state, and the generators of Python and NumPy. All members call it after the same
    step; blocks until they do. Raises RingError.
    """
    if ring.size == 1:
        return []
    own_arrays = {OWN: packed(), **(state_module(parts, call).own(parts) if parts else {})}
    content = np.concatenate([np.ravel(array).view(np.uint8) for array in own_arrays.values()])
    rows = ring.allgather_array(content[np.newaxis], name="member_states")
    return [_split(row, own_arrays) for row in rows]


def _split(row: Array, like: Mapping[str, Array]) -> dict[str, Array]:
    ends = np.cumsum([array.nbytes for array in like.values()])
    return {
        name: part.copy().view(array.dtype).reshape(array.shape)
        for part, (name, array) in zip(np.split(row, ends[:-1]), like.items(), strict=True)
    }
