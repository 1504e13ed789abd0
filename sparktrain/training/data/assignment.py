"""Assigns batches to members, and decides about last batches that do not fill a step. Pure.

A round is what a gang of k members trains on in one step: batches i*k to i*k+k-1, one for each rank. All its batches
have the same number of examples, because the members average their gradients with equal weights.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparktrain.config.param_values import described, did_you_mean, shown
from sparktrain.errors import SpecError

Indices = NDArray[np.int64]


class Uneven(StrEnum):
    """What happens to a round that lacks batches, or has a smaller one."""

    DROP = "drop"  # it is dropped; if only one batch is smaller, all are cut to its size
    PAD = "pad"  # it is filled with examples of weight zero
    REPEAT = "repeat"  # it is filled with examples from the start of the epoch


def yields_batches(data: Any, flatten: Callable[[Any], Iterable[Any]]) -> bool:
    """Whether `data` is a function or an iterable of batches, and holds no arrays; `flatten` lists what it nests."""
    return callable(data) or (isinstance(data, Iterable) and not _holds_arrays(data, flatten))


def _holds_arrays(data: Any, flatten: Callable[[Any], Iterable[Any]]) -> bool:
    return hasattr(data, "shape") or (
        isinstance(data, tuple | dict) and all(leaf is None or hasattr(leaf, "shape") for leaf in flatten(data))
    )


@dataclass(frozen=True)
class BatchShare:
    """One member's share of every round."""

    rank: int
    size: int
    uneven: Uneven

    def steps(self, batches: int) -> int:
        """The number of rounds in `batches` batches. Raises SpecError if there are fewer batches than members."""
        if batches < self.size:
            raise SpecError(too_few(f"{batches} batch{'es' * (batches != 1)}", self.size))
        return batches // self.size if self.uneven is Uneven.DROP else -(-batches // self.size)

    def rows(self, order: Indices, batch: int) -> tuple[Indices, Indices]:
        """This member's examples of one pass over `order`, in batches of `batch`.

        Returns a matrix (steps, batch) of full batches, and a vector: the last, smaller batch, or empty.
        """
        full = len(order) // (batch * self.size)
        cut = full * batch * self.size
        matrix = order[:cut].reshape(full, self.size, batch)[:, self.rank]
        last = self._last(order, cut, batch)
        if len(last) == batch:
            return np.concatenate([matrix, last[np.newaxis]]), last[:0]
        return matrix, last

    def real(self, rows: int, batch: int) -> int:
        """How many leading examples of this member's last batch are no filling, in a pass over `rows` examples."""
        remainder = rows % (batch * self.size)
        if not remainder or self.uneven is Uneven.DROP:
            return batch
        return min(batch, max(0, remainder - self.rank * batch))

    def _last(self, order: Indices, cut: int, batch: int) -> Indices:
        """The examples of the last, uneven round; none if it is dropped."""
        tail = order[cut:]
        examples = tail[self.rank * batch : (self.rank + 1) * batch]
        if self.uneven is Uneven.DROP:
            return examples[: max(0, len(tail) - (self.size - 1) * batch)]
        first = order[self.rank * batch : (self.rank + 1) * batch]
        return np.concatenate([examples, np.resize(first, min(batch, len(tail)) - len(examples))])


def share(rank: int, size: int, uneven: str) -> BatchShare:
    """The share of member `rank` of `size`. Raises SpecError for an unknown `uneven`."""
    names = [mode.value for mode in Uneven]
    if uneven not in names:
        raise SpecError(f"uneven ({shown(uneven)}) must be one of {', '.join(names)}{did_you_mean(uneven, names)}")
    return BatchShare(rank, size, Uneven(uneven))


def batch_of(batch_size: object) -> int:
    """The rows of one member's batch. Raises SpecError."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer):
        raise SpecError(f"batch_size is {described(batch_size)}; pass the examples of one member's batch, such as 32")
    if batch_size < 1:
        raise SpecError(f"batch_size ({batch_size}) must be at least 1")
    return int(batch_size)


def too_few(amount: str, size: int) -> str:
    """The message for data that does not fill one round."""
    return (
        f"{amount} for {size} members: each member needs at least one batch in an epoch; make the batches smaller, "
        "give more data, or start fewer members"
    )


def order(rows: int, seed: int | None, number: int) -> Indices:
    """The order of `rows` examples in pass `number`, the same on every member; unshuffled if `seed` is None."""
    if seed is None:
        return np.arange(rows, dtype=np.int64)
    return np.random.default_rng([seed % 2**64, number]).permutation(rows).astype(np.int64, copy=False)


def check_unused(kind: str, batch_size: int | None, shuffle: bool) -> None:
    """Raise SpecError for options of arrays where the data is of another `kind`."""
    for name, value in {"batch_size": batch_size, "shuffle": shuffle}.items():
        if value:
            raise SpecError(f"{name} ({shown(value)}) is for arrays, and the data is {kind}: {name} it yourself")
