"""The rows of a pass in its order, with the next window made ready once, in the background."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from sparktrain.training.data import row_order
from sparktrain.training.data.ordered_reader import OrderedReader
from sparktrain.training.data.row_order import RowOrder

GROUPS = [10] * 12


class Numbers:
    """In the place of a group reader: a row has its own number. It counts what is made ready."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self.opened: Counter[tuple[int, ...]] = Counter()
        self.urgent: list[bool] = []
        self.failures = 0

    def ahead(self, groups: Sequence[int]) -> None: ...

    def soon(self, work: Callable[[], object]) -> None:
        self._pool.submit(work).exception(10)

    def open(self, groups: Sequence[int], *, at_once: bool) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("the store is away")
        self.opened[tuple(groups)] += 1
        self.urgent.append(at_once)

    def permuted(self, groups: Sequence[int], order: Any, names: Sequence[str], stack: object) -> None: ...

    def take(self, rows: Any, names: Sequence[str], stack: object) -> dict[str, Any]:
        return {"id": rows}


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(row_order, "WINDOW_ROWS", 30)
    with ThreadPoolExecutor(1) as pool:
        yield Numbers(pool)


def test_each_window_is_made_ready_once_and_before_it_is_read(numbers: Numbers) -> None:
    order = RowOrder(GROUPS, GROUPS, 3, 0)
    reader: OrderedReader = OrderedReader(numbers, order, ["id"])  # type: ignore[arg-type]
    found = []
    for start in range(0, order.length, 7):
        found += reader.read(np.arange(start, min(order.length, start + 7)))["id"].tolist()
        ready = min(order.windows, start // 30 + 2)
        assert sum(numbers.opened.values()) >= ready, "the next window is ready when this one is read"

    assert found == order.at(np.arange(order.length)).tolist()
    assert set(numbers.opened.values()) == {1}
    assert len(numbers.opened) == order.windows == 4
    assert numbers.urgent == [True, False, False, False], "only the first window is waited for"


def test_a_failure_ahead_is_tried_again_where_the_window_is_needed(numbers: Numbers) -> None:
    order = RowOrder(GROUPS, GROUPS, 3, 0)
    reader: OrderedReader = OrderedReader(numbers, order, ["id"])  # type: ignore[arg-type]
    numbers.failures = 1  # this window, which comes before the next one
    with pytest.raises(OSError, match="the store is away"):
        reader.read(np.arange(5))
    reader.read(np.arange(5))
    numbers.failures = 1  # the window after the next one, ahead
    reader.read(np.arange(30, 35))
    assert numbers.failures == 0

    assert reader.read(np.arange(90))["id"].tolist() == order.at(np.arange(90)).tolist()
