"""The order of a dataset's rows in a pass, and each member's share of it. Pure: nothing is read.

The order is a function of the groups' sizes, the seed and the number of the pass alone. A shuffled order permutes the
groups, joins them to windows, and permutes the rows of each window: every window of a pass can be computed by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparktrain.errors import SpecError
from sparktrain.training.data.assignment import BatchShare, Indices, Uneven, too_few

WINDOW_ROWS = 2**18
WINDOW_BYTES = 2**28
"""A window ends with the group that reaches one of the two."""
_GROUPS = 2**63
"""In the place of a window's number: the order of groups."""


class RowOrder:
    """The rows of one pass, by position. Any thread uses it."""

    def __init__(self, groups: Sequence[int], sizes: Sequence[int], seed: int | None, number: int) -> None:
        """`groups` has the rows of each group, `sizes` their bytes; `number` is that of the pass, from 0.

        Without a seed the rows keep the order of the dataset.
        """
        self._seed = seed
        self._number = number
        self._first_rows = np.concatenate([[0], np.cumsum(groups, dtype=np.int64)])
        order = None if seed is None else _permutation(len(groups), [seed, number, _GROUPS])
        self._windows = _windows(groups, sizes, order)
        ends = np.cumsum([sum(groups[group] for group in window) for window in self._windows], dtype=np.int64)
        self._starts: list[int] = [0, *ends.tolist()]

    @property
    def length(self) -> int:
        """Number of rows."""
        return self._starts[-1]

    @property
    def shuffled(self) -> bool:
        """Whether rows have another order than in the dataset."""
        return self._seed is not None

    def at(self, positions: Indices) -> Indices:
        """The row at each position."""
        rows = np.empty(len(positions), np.int64)
        windows = self.windows_of(positions)
        for window in np.unique(windows).tolist():
            mask = windows == window
            rows[mask] = (
                self.rows_of(window)[positions[mask] - self.start(window)] if self.shuffled else positions[mask]
            )
        return rows

    @property
    def windows(self) -> int:
        """Number of windows."""
        return len(self._windows)

    def windows_of(self, positions: Indices) -> Indices:
        """The number of the window with each position."""
        return np.searchsorted(self._starts, positions, side="right") - 1

    def start(self, window: int) -> int:
        """The position of the first row of this window."""
        return self._starts[window]

    def groups_from(self, window: int, windows: int) -> list[int]:
        """The groups of `windows` windows from this one on, in the order of their use."""
        return [group for groups in self._windows[window : window + windows] for group in groups]

    def rows_of(self, window: int) -> Indices:
        """The rows of a window of a shuffled pass, in their order. Takes milliseconds for a large window."""
        rows = [np.arange(self._first_rows[group], self._first_rows[group + 1]) for group in self._windows[window]]
        shuffled: Indices = np.concatenate(rows)[self.order_within(window)]
        return shuffled

    def order_within(self, window: int) -> Indices:
        """As `rows_of`, with the numbers that the rows have in the window before: one of its groups after the other."""
        return _permutation(
            self._starts[window + 1] - self._starts[window], [self._seed or 0, self._number, window + 1]
        )


@dataclass(frozen=True)
class RowShare:
    """One member's share of a pass over `rows` rows that starts at position `taken_rows`, in batches of `batch`."""

    share: BatchShare
    rows: int
    batch: int
    taken_rows: int = 0

    @property
    def steps(self) -> int:
        """Steps of every member. Raises SpecError when a whole pass has fewer rows than members, or batches."""
        if not self.taken_rows:
            if self.rows < self.share.size:
                raise SpecError(too_few(f"{self.rows} row{'s' * (self.rows != 1)}", self.share.size))
            return self.share.steps(-(-self.rows // self.batch))
        batches = -(-(self.rows - self.taken_rows) // self.batch)
        return batches // self.share.size if self.share.uneven is Uneven.DROP else -(-batches // self.share.size)

    def positions(self, first: int, last: int) -> Indices:
        """The positions of the rows of steps `first` to `last - 1`, one step after the other."""
        share = self.share
        full = self._full
        steps = np.arange(first, min(last, full), dtype=np.int64)
        starts = self.taken_rows + (steps * share.size + share.rank) * self.batch
        batch = np.arange(self.batch if len(starts) else 0, dtype=np.int64)  # it may be larger than any array
        full_positions: Indices = (starts[:, np.newaxis] + batch).reshape(-1)
        return np.concatenate([full_positions, self._last()]) if last > full else full_positions

    def real(self, step: int) -> int:
        """How many leading rows of this step are no filling."""
        if step < self._full or self.share.uneven is Uneven.DROP:
            return self.batch
        return min(self.batch, max(0, self._tail_rows - self.share.rank * self.batch))

    def taken_after(self, steps: int) -> int:
        """The position of the gang after `steps` steps of this share."""
        return min(self.rows, self.taken_rows + steps * self.share.size * self.batch)

    @property
    def _full(self) -> int:
        """Steps in which every member has a full batch."""
        return (self.rows - self.taken_rows) // (self.batch * self.share.size)

    @property
    def _tail_rows(self) -> int:
        """Rows after these steps."""
        return (self.rows - self.taken_rows) % (self.batch * self.share.size)

    def _last(self) -> Indices:
        """The positions of the last, uneven step; none if it is dropped."""
        share = self.share
        tail = self._tail_rows
        start = self.rows - self._tail_rows
        positions = np.arange(share.rank * self.batch, min(tail, (share.rank + 1) * self.batch), dtype=np.int64) + start
        if share.uneven is Uneven.DROP:
            return positions[: max(0, tail - (share.size - 1) * self.batch)]
        if not tail:
            return positions[:0]
        first = np.arange(share.rank * self.batch, min(self.rows, (share.rank + 1) * self.batch), dtype=np.int64)
        filling = first if len(first) else np.arange(self.rows, dtype=np.int64)[: self.batch]
        return np.concatenate([positions, np.resize(filling, min(self.batch, tail) - len(positions))])


def contiguous(rows: int, rank: int, size: int) -> tuple[int, int]:
    """First and last row + 1 of the share of `rank` in one piece: shares differ by one row at most."""
    return rows * rank // size, rows * (rank + 1) // size


def _windows(groups: Sequence[int], sizes: Sequence[int], order: Indices | None) -> list[list[int]]:
    """Groups in their order, joined to windows."""
    windows: list[list[int]] = []
    rows = size = 0
    for group in range(len(groups)) if order is None else order.tolist():
        if not windows or rows >= WINDOW_ROWS or size >= WINDOW_BYTES:
            windows.append([])
            rows = size = 0
        windows[-1].append(group)
        rows = rows + groups[group]
        size = size + sizes[group]
    return windows


def _permutation(length: int, key: Sequence[int]) -> Indices:
    """A permutation that depends on `key` alone. Its last number must not be 0: SeedSequence ignores zeros at the end.

    NumPy promises that its bit generators stay the same, and does not promise that for its own `permutation`.
    """
    words = np.array([number % 2**64 for number in key], "<u8").view("<u4").tolist()
    bits = np.random.PCG64(np.random.SeedSequence(words)).random_raw(length)
    low = np.uint64((1 << max(1, length - 1).bit_length()) - 1)
    bits &= ~low
    bits |= np.arange(length, dtype=np.uint64)  # all differ: one order, in a third of argsort's time
    bits.sort()
    bits &= low
    return bits.view(np.int64)
