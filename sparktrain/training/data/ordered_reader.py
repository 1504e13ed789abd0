"""Reads the rows of one pass by their positions, and has the next window made ready meanwhile."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from sparktrain.datasets.group_reader import GroupReader
from sparktrain.datasets.row_arrays import Arrays, Stack, run_of
from sparktrain.training.data.assignment import Indices
from sparktrain.training.data.row_order import RowOrder

WINDOWS_AHEAD = 1
_KEPT_WINDOWS = 1 + WINDOWS_AHEAD

Take = Callable[[slice | Indices], Arrays]
"""Has the rows at places of a window, the columns and the stack."""


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
        first, last = self._order.windows_of(np.array([positions.min(), positions.max()])).tolist()
        if first == last:
            self._look_ahead(first)
            return self._part(first, positions)
        windows = self._order.windows_of(positions)
        self._look_ahead(int(windows[0]))
        bounds = [0, *(np.flatnonzero(np.diff(windows)) + 1).tolist(), len(positions)]
        parts = [self._part(int(windows[start]), positions[start:end]) for start, end in pairwise(bounds)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _look_ahead(self, window: int) -> None:
        """Have groups fetched, and the next window made ready, once for each window."""
        if window == self._at:
            return
        self._reader.ahead(self._order.groups_from(window, 1 + WINDOWS_AHEAD))
        if self._order.shuffled:
            self._window(window).ready(at_once=True)  # before the next one, which would have its processors
            for next_window in range(window + 1, min(window + 1 + WINDOWS_AHEAD, self._order.windows)):
                self._reader.soon(partial(self._window(next_window).ready, at_once=False))
        self._at = window

    def _part(self, window: int, positions: Indices) -> Arrays:
        if not self._order.shuffled:
            return self._reader.take(positions, self._names, self._stack)
        places = positions - self._order.start(window)
        run = run_of(places)
        return self._window(window).ready(at_once=True)(places if run is None else run)

    def _window(self, window: int) -> "_Window":
        if (cached := self._windows.get(window)) is not None:
            return cached
        new_window = self._windows[window] = _Window(partial(self._make, window))
        if len(self._windows) > _KEPT_WINDOWS:
            self._windows.popitem(last=False)
        return new_window

    def _make(self, window: int, at_once: bool) -> Take:
        """Any thread."""
        groups = self._order.groups_from(window, 1)
        self._reader.open(groups, at_once=at_once)
        permuted = self._reader.permuted(groups, self._order.order_within(window), self._names, self._stack)
        if permuted is not None:
            return permuted.take
        rows = self._order.rows_of(window)
        return lambda places: self._reader.take(rows[places], self._names, self._stack)


class _Window:
    """A window that is made ready once: ahead of its use, or else by who needs it. Any thread."""

    def __init__(self, make: Callable[[bool], Take]) -> None:
        self._make = make
        self._turn = threading.Lock()
        self._result: Take | None = None

    def ready(self, *, at_once: bool) -> Take:
        """What takes its rows; `at_once`: they are needed now. Blocks. Raises as `GroupReader.take`."""
        with self._turn:
            if self._result is None:
                self._result = self._make(at_once)
            return self._result
