"""Arrays of JAX with parts on devices of other members: see `Framework.arrays`."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from sparktrain.training.checkpoint.tensor_slices import Array, Bounds, Index, bounds_of


def is_split(value: Any) -> bool:
    """Whether other members hold parts of `value` that this one lacks."""
    return isinstance(value, jax.Array) and not value.is_fully_addressable and not value.is_fully_replicated


def dtype_name(value: Any) -> str:
    """The name of the dtype of `value`, as NumPy has it."""
    return str(value.dtype.name)


def joined(value: Any) -> Any:
    """`value` as an array of the host. All members call it in the same order; blocks until they do."""
    return multihost_utils.process_allgather(value, tiled=True)


def own_slices(value: Any) -> list[tuple[Bounds, Array]]:
    """The shards of this process's devices, except copies of those of other devices."""
    shards = [shard for shard in value.addressable_shards if shard.replica_id == 0]
    return [(bounds_of(shard.index, value.shape), np.asarray(shard.data)) for shard in shards]


def from_slices(value: Any, read: Callable[[Index], Array]) -> Any:
    """An array in place of `value`, from what `read` returns."""

    def part(index: Index | None) -> Array:
        assert index is not None
        start, stop = bounds_of(index, value.shape)
        return read(tuple(map(slice, start, stop)))

    return jax.make_array_from_callback(value.shape, value.sharding, part)
