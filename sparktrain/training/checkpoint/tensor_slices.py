"""Slices of tensors that several members write, and which file has which slice.

Each member writes the slices that it has and an index of them. All indices together cover each split tensor; slices
that share elements are equal. A reader of some elements reads only the slices that have these.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from sparktrain.base.decoding import from_json

Array = np.ndarray[Any, np.dtype[Any]]
Index = tuple[slice, ...]
Bounds = tuple[tuple[int, ...], tuple[int, ...]]
"""Where a piece starts and stops in each dimension."""


class TensorSlice(Struct, frozen=True, kw_only=True):
    """A piece of a tensor, and where it is."""

    key: str
    """The name of the piece in the files."""
    name: str
    """Of the whole tensor."""
    dtype: str
    shape: tuple[int, ...]
    """Of the whole tensor."""
    start: tuple[int, ...]
    stop: tuple[int, ...]
    """In each dimension of the whole tensor, after the last element of the piece."""

    @property
    def piece_shape(self) -> tuple[int, ...]:
        """The shape of the piece."""
        return tuple(stop - start for start, stop in zip(self.start, self.stop, strict=True))


def index_file(folder: Path, rank: int) -> Path:
    """The index of the slices of member `rank`."""
    return folder / f"slices-{rank:04d}.json"


def save_index(folder: Path, rank: int, slices: Sequence[TensorSlice]) -> None:
    """Write the index of the slices of member `rank`. Raises OSError."""
    index_file(folder, rank).write_bytes(msgspec.json.encode(slices))


def read_indices(folder: Path, *, whole: bool = True) -> dict[str, list[TensorSlice]]:
    """The slices of each split tensor in `folder`, by its name.

    Raises OSError, and, unless `whole` is false, ValueError where they do not cover each tensor, as when the part of a
    member is missing, or overlap without being equal.
    """
    slices: dict[str, list[TensorSlice]] = {}
    for path in sorted(folder.glob("slices-*.json")):
        with naming(path):
            for entry in from_json(path.read_bytes(), list[TensorSlice]):
                slices.setdefault(entry.name, []).append(entry)
    for name, entries in slices.items() if whole else ():
        if problem := _problem(entries):
            raise ValueError(f"the slices of {name!r} {problem}")
    return slices


def slice_key(name: str, rank: int, number: int) -> str:
    """The key of slice `number` of the member `rank`, of the tensor `name`."""
    return f"{name}@{rank}.{number}"


def writer_of(key: str) -> str:
    """The rank in the key of a slice."""
    return key.rpartition("@")[2].partition(".")[0]


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Have an error that comes from the content of the file have its name. Raises ValueError."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{path.name}: {error}") from error


def cut(bounds: Bounds, itemsize: int, most_bytes: int) -> Iterator[Bounds]:
    """The pieces of at most `most_bytes`, or of one element, that `bounds` has, in order. Nothing where it is empty."""
    start, stop = bounds
    extents = [last - first for first, last in zip(start, stop, strict=True)]
    if 0 in extents:
        return
    if math.prod(extents) * itemsize <= most_bytes or math.prod(extents) == 1:
        yield bounds
        return
    axis = next(number for number, extent in enumerate(extents) if extent > 1)
    row_bytes = math.prod(extents[axis + 1 :]) * itemsize
    count = max(1, most_bytes // row_bytes)
    for first in range(start[axis], stop[axis], count):
        last = min(first + count, stop[axis])
        piece = (
            (*start[:axis], first, *start[axis + 1 :]),
            (*stop[:axis], last, *stop[axis + 1 :]),
        )
        yield from cut(piece, itemsize, most_bytes)


def bounds_of(index: Sequence[slice], shape: Sequence[int]) -> Bounds:
    """Where `index` starts and stops in a tensor of `shape`. Raises ValueError for a step, and other dimensions."""
    if len(index) != len(shape) or any(part.step not in (None, 1) for part in index):
        raise ValueError(f"{tuple(index)} is no part of a tensor of shape {tuple(shape)}")
    ranges = [part.indices(extent) for part, extent in zip(index, shape, strict=True)]
    return tuple(first for first, _, _ in ranges), tuple(max(first, last) for first, last, _ in ranges)


def overlap(bounds: Bounds, other: Bounds) -> Bounds | None:
    """The part that two pieces of a tensor share; None where they share none."""
    start = tuple(map(max, bounds[0], other[0]))
    stop = tuple(map(min, bounds[1], other[1]))
    return (start, stop) if all(first < last for first, last in zip(start, stop, strict=True)) else None


def within(bounds: Bounds, origin: Sequence[int]) -> Index:
    """The index of `bounds` in an array that starts at `origin`."""
    return tuple(
        slice(first - offset, last - offset) for first, last, offset in zip(bounds[0], bounds[1], origin, strict=True)
    )


def assemble(
    target: Array, bounds: Bounds, slices: Iterable[TensorSlice], read: Callable[[TensorSlice, Index], Array]
) -> None:
    """Fill `target`, which is the part `bounds` of a tensor, from its slices; `read` returns a part of one of them.

    Raises ValueError where they do not have all of it.
    """
    count = 0
    for entry in _distinct(slices):
        shared = overlap(bounds, (entry.start, entry.stop))
        if shared is not None:
            piece = read(entry, within(shared, entry.start))
            target[within(shared, bounds[0])] = piece
            count += piece.size
    if count != target.size:
        raise ValueError(f"the files have {count} of the {target.size} elements that are read")


def _distinct(entries: Iterable[TensorSlice]) -> list[TensorSlice]:
    """One of equal pieces: members that have one without knowing of each other have both written it."""
    return [*{(entry.start, entry.stop): entry for entry in entries}.values()]


def _problem(entries: Sequence[TensorSlice]) -> str:
    first = entries[0]
    shape = first.shape
    if any((entry.dtype, entry.shape) != (first.dtype, shape) for entry in entries):
        return "are of several tensors"
    if any(len(entry.start) != len(shape) or len(entry.stop) != len(shape) for entry in entries):
        return f"have other dimensions than {shape}"
    writers = ", ".join(sorted({writer_of(entry.key) for entry in entries}))
    entries = _distinct(entries)
    starts = np.array([entry.start for entry in entries], "int64").reshape(len(entries), len(shape))
    stops = np.array([entry.stop for entry in entries], "int64").reshape(len(entries), len(shape))
    if (starts < 0).any() or (starts >= stops).any() or (stops > np.array(shape, "int64")).any():
        return f"reach beyond its shape {shape}"
    count = sum(math.prod(entry.piece_shape) for entry in entries)
    if count != math.prod(shape):
        return (
            f"have {count} of its {math.prod(shape)} elements, of rank {writers}: the files slices-*.json and "
            "part-*.safetensors of another rank are missing"
        )
    for number in range(len(entries) - 1):
        apart = (stops[number + 1 :] <= starts[number]) | (starts[number + 1 :] >= stops[number])
        if not apart.any(axis=1).all():
            return "overlap"
    return ""
