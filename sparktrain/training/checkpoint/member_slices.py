"""The slices that one member writes, of all tensors that members hold in parts."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from sparktrain.training.checkpoint.tensor_files import SHARD_BYTES, Array, as_plain
from sparktrain.training.checkpoint.tensor_slices import Bounds, TensorSlice, cut, slice_key, within


class MemberSlices:
    """Copies of what the member `rank` writes, in the memory of `spare` tensors that fit. For one thread."""

    def __init__(self, rank: int, spare: Mapping[str, Array]) -> None:
        self.rank = rank
        self.arrays: dict[str, Array] = {}
        """The slices by their keys, and what else the member writes."""
        self.slices: list[TensorSlice] = []
        """The piece behind each key of the slices among `arrays`."""
        self._spare = spare

    def add(self, name: str, shape: Sequence[int], dtype: str, pieces: Iterable[tuple[Bounds, Array]]) -> None:
        """Copy `pieces` of the tensor `name` of this `shape` and `dtype`, in slices of a file's size at most."""
        for outer, piece in pieces:
            for bounds in cut(outer, piece.itemsize, SHARD_BYTES):
                key = self.note(name, shape, dtype, bounds)
                self.arrays[key] = copied(as_plain(piece[within(bounds, outer[0])]), self._spare.get(key))

    def note(self, name: str, shape: Sequence[int], dtype: str, bounds: Bounds) -> str:
        """Add a slice of the tensor `name` to the index alone; returns its key."""
        key = slice_key(name, self.rank, len(self.slices))
        start, stop = bounds
        self.slices.append(TensorSlice(key=key, name=name, dtype=dtype, shape=tuple(shape), start=start, stop=stop))
        return key


def copied(content: Array, spare: Array | None) -> Array:
    """A copy of `content`, in the memory of `spare` where that has its dtype and shape."""
    if spare is None or (spare.dtype, spare.shape) != (content.dtype, content.shape):
        return np.array(content, order="C")
    np.copyto(spare, content)
    return spare
