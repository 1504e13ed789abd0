"""Distributes the elements of all variables over the servers."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from sparktrain.errors import SpecError

Array = NDArray[Any]
ALIGNMENT = 64
"""Every piece of a message starts at a multiple of so many bytes: a cache line."""


class VariableSpec(Struct, frozen=True):
    """One variable, as every member knows it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """The name of its NumPy type."""

    @property
    def size(self) -> int:
        """The number of its elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self.size * np.dtype(self.dtype).itemsize


class Piece(Struct, frozen=True):
    """The elements `start` to `stop` of a variable in row-major order, on one server."""

    variable: int
    start: int
    stop: int


class ShardPlan(Struct, frozen=True):
    """The pieces of every server. The same variables and the same number of servers give the same plan."""

    variables: tuple[VariableSpec, ...]
    shards: tuple[tuple[Piece, ...], ...]

    def layout(self, shard: int) -> "PieceLayout":
        """The places of a server's pieces in its messages."""
        pieces = self.shards[shard]
        return layout_of([(self.variables[piece.variable].dtype, piece.stop - piece.start) for piece in pieces])

    def scatter(self, values: Sequence[Array], shard: int) -> list[Array]:
        """A server's pieces of `values`, which has the arrays of all variables: flat, and views where possible."""
        return [values[piece.variable].reshape(-1)[piece.start : piece.stop] for piece in self.shards[shard]]

    def gather(self, pieces: Sequence[Array], shard: int, values: Sequence[Array]) -> None:
        """Copy a server's `pieces` to their places in `values`, which are contiguous."""
        for place, piece in zip(self.shards[shard], pieces, strict=True):
            values[place.variable].reshape(-1)[place.start : place.stop] = piece


class PieceLayout(Struct, frozen=True):
    """Where the pieces of one server are in the bytes of a message."""

    dtypes: tuple[str, ...]
    sizes: tuple[int, ...]
    """Elements of each piece."""
    offsets: tuple[int, ...]
    nbytes: int
    """Bytes in all."""

    def views(self, buffer: bytearray | memoryview) -> list[Array]:
        """Arrays over `buffer`, which has `nbytes` bytes: they share its memory."""
        return [
            np.frombuffer(buffer, dtype, size, offset)
            for dtype, size, offset in zip(self.dtypes, self.sizes, self.offsets, strict=True)
        ]


def layout_of(pieces: Sequence[tuple[str, int]]) -> PieceLayout:
    """The layout of pieces with these types and numbers of elements."""
    lengths = [-(-np.dtype(dtype).itemsize * size // ALIGNMENT) * ALIGNMENT for dtype, size in pieces]
    ends = list(accumulate(lengths, initial=0))
    return PieceLayout(tuple(d for d, _ in pieces), tuple(s for _, s in pieces), tuple(ends[:-1]), ends[-1])


def plan_shards(variables: Sequence[VariableSpec], servers: int, *, sliceable: bool) -> ShardPlan:
    """Distribute `variables` over `servers` so that each keeps about as many bytes as the others.

    `sliceable`: the optimizer updates each element by itself, so that a variable may be cut anywhere. Otherwise each
    variable stays whole, and the largest is placed first, where the fewest bytes are (Graham 1969, 'Bounds on
    Multiprocessing Timing Anomalies'). Raises SpecError where a server would have nothing to keep.
    """
    if servers < 1:
        raise SpecError(f"ps={servers}: a parameter-server gang needs at least one server; pass ps=1 or more")
    if not any(variable.size for variable in variables):
        raise SpecError(
            f"ps={servers} without variables: the model has {len(variables)} trainable variables and no element in "
            "them, so that the servers have nothing to keep; build the model first, or leave layers trainable"
        )
    shards = _cut(variables, servers) if sliceable else _packed(variables, servers)
    if not all(shards):
        model_size = f"{len(variables)} variables with {sum(variable.size for variable in variables)} elements"
        raise SpecError(f"ps={servers}: {model_size} do not give each server a piece; lower ps")
    return ShardPlan(tuple(variables), tuple(map(tuple, shards)))


def _packed(variables: Sequence[VariableSpec], servers: int) -> list[list[Piece]]:
    shards: list[list[Piece]] = [[] for _ in range(servers)]
    load = [0] * servers
    for index in sorted(range(len(variables)), key=lambda position: (-variables[position].nbytes, position)):
        if not variables[index].size:
            continue
        lightest = min(range(servers), key=lambda server: (load[server], server))
        shards[lightest].append(Piece(index, 0, variables[index].size))
        load[lightest] += variables[index].nbytes
    return [sorted(shard, key=lambda piece: piece.variable) for shard in shards]


def _cut(variables: Sequence[VariableSpec], servers: int) -> list[list[Piece]]:
    """Cut the row of all variables where the next server's share starts, to the nearest element."""
    total = sum(variable.nbytes for variable in variables)
    shards: list[list[Piece]] = [[] for _ in range(servers)]
    offset = 0
    for index, spec in enumerate(variables):
        width = np.dtype(spec.dtype).itemsize
        bounds = [min(max(round((total * k / servers - offset) / width), 0), spec.size) for k in range(servers + 1)]
        for shard, (start, stop) in enumerate(pairwise(bounds)):
            if start < stop:
                shards[shard].append(Piece(index, start, stop))
        offset += spec.nbytes
    return shards
