"""Reads the rows of one pass by their positions, and has the next window made ready meanwhile."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from sparktrain.datasets.group_reader import GroupReader
from sparktrain.datasets.joined_groups import Arrays, JoinedGroups, Stack
from sparktrain.training.data.assignment import Indices
from sparktrain.training.data.row_order import RowOrder

WINDOWS_AHEAD = 1
_KEPT_WINDOWS = 1 + WINDOWS_AHEAD

Ready = tuple[Indices, JoinedGroups | None]


class OrderedReader:
    """The rows of one pass, for readers that move forward. One thread uses it; others make the next window ready."""

    def __init__(self, reader: GroupReader, order: RowOrder, names: Sequence[str], stack: Stack | None = None) -> None:
        self._reader = reader
        self._order = order
        self._names = names
        self._stack = stack
        self._at = -1
        self._windows: OrderedDict[int, _Window] = OrderedDict()

    def read(self, positions: Indices) -> Arrays:
        """The rows at these positions, which ascend up to fillings: the columns, and the stack by `Stack.KEY`.

        Blocks. Raises as `GroupReader.take`.
        """
        windows = self._order.windows_of(positions)
        self._look_ahead(int(windows[0]))
        bounds = [0, *(np.flatnonzero(np.diff(windows)) + 1).tolist(), len(positions)]
        parts = [self._part(int(windows[start]), positions[start:end]) for start, end in pairwise(bounds)]
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _look_ahead(self, window: int) -> None:
        """Have groups fetched, and the next window made ready, once for each window."""
        if window == self._at:
            return
        self._at = window
        self._reader.ahead(self._order.groups_from(window, 1 + WINDOWS_AHEAD))
        if self._order.shuffled:
            self._window(window)
            for next_window in range(window + 1, min(window + 1 + WINDOWS_AHEAD, self._order.windows)):
                self._reader.soon(self._window(next_window).ready)

    def _part(self, window: int, positions: Indices) -> Arrays:
        if not self._order.shuffled:
            return self._reader.take(positions, self._names, self._stack)
        rows, joined = self._window(window).ready()
        picks = rows[positions - self._order.start(window)]
        return self._reader.take(picks, self._names, self._stack) if joined is None else joined.take(picks)

    def _window(self, window: int) -> "_Window":
        if (cached := self._windows.get(window)) is not None:
            return cached
        new_window = self._windows[window] = _Window(lambda: self._make(window))
        if len(self._windows) > _KEPT_WINDOWS:
            self._windows.popitem(last=False)
        return new_window

    def _make(self, window: int) -> Ready:
        """Any thread."""
        groups = self._order.groups_from(window, 1)
        joined = self._reader.joined(groups, self._names, self._stack)
        if joined is None:
            self._reader.open(groups)
        return self._order.rows_of(window), joined


class _Window:
    """A window that is made ready once: ahead of its use, or else by who needs it. Any thread."""

    def __init__(self, make: Callable[[], Ready]) -> None:
        self._make = make
        self._turn = threading.Lock()
        self._result: Ready | None = None

    def ready(self) -> Ready:
        """Its rows in order, and their columns where these are joined. Blocks. Raises as `GroupReader.joined`."""
        with self._turn:
            if self._result is None:
                self._result = self._make()
            return self._result
