"""The contract of reports on every store: a test class for a store inherits `MetricLogContract`."""

import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from sparktrain.errors import RunDirectoryError
from sparktrain.rundir.layout import BlockName, RunLayout
from sparktrain.rundir.metric_log import FAN_IN, MetricLog, StepRow, block_paths, lines_of, read_blocks, step_row
from sparktrain.store.base import Store
from tests.unit.store.gated import Crash, FailAt, GatedStore

LAYOUT = RunLayout("mnist")


def row(step: int, trial: int = 0, generation: int = 1, **metrics: float) -> StepRow:
    return step_row(trial, generation, 0, step, 1_700_000_000.0 + step, metrics or {"loss": 0.5})


def steps(store: Store) -> list[int]:
    """The stored steps, sorted; a duplicate appears twice."""
    return sorted(each.step for each in read_blocks(store, LAYOUT)[1])


def until_crash(log: MetricLog) -> int:
    """The number of appends that returned before the gate broke one."""
    for step in range(2 * FAN_IN):
        try:
            log.append(lines_of([row(step)]))
        except Crash:
            return step
    raise AssertionError("nothing broke")


class MetricLogContract:
    """Inherit it, with a fixture `store` for an empty store."""

    def test_rows_are_read_back(self, store: Store) -> None:
        assert read_blocks(store, LAYOUT) == ((), [])
        log = MetricLog(store, LAYOUT)
        log.append(lines_of([row(1), row(2, trial=3, generation=2, loss=math.inf, more=math.nan)]))
        log.append(lines_of([row(3, **{"naïve \u2028": -math.inf})]))
        _, rows = read_blocks(store, LAYOUT)
        found = {each.step: each for each in rows}
        assert found[1] == row(1)
        assert (found[2].trial, found[2].generation, found[2].time) == (3, 2, 1_700_000_002.0)
        assert {name: str(float(value)) for name, value in found[2].metrics.items()} == {"loss": "inf", "more": "nan"}
        assert float(found[3].metrics["naïve \u2028"]) == -math.inf

    def test_a_long_run_has_few_files(self, store: Store) -> None:
        log = MetricLog(store, LAYOUT)
        count = 3 * FAN_IN + 5
        for step in range(count):
            log.append(lines_of([row(step)]))
        assert len(store.list(LAYOUT.reports.path)) == 3 + 5
        assert steps(store) == list(range(count))

    def test_drivers_of_one_run_do_not_touch_each_others_blocks(self, store: Store) -> None:
        for first in (0, 100):
            log = MetricLog(store, LAYOUT)
            for step in range(first, first + FAN_IN + 1):
                log.append(lines_of([row(step)]))
        assert steps(store) == [*range(FAN_IN + 1), *range(100, 100 + FAN_IN + 1)]

    def test_stored_appends_survive_a_crash_anywhere(self, store: Store) -> None:
        for index in range(FAN_IN - 2, FAN_IN + 6):
            for when in ("before", "after"):
                layout = RunLayout(f"run-{index}-{when}")
                gate = FailAt(index, when, Crash())
                stored = until_crash(MetricLog(GatedStore(store, gate), layout))
                found = sorted(each.step for each in read_blocks(store, layout)[1])
                assert found[:stored] == list(range(stored))
                assert found[stored:] in ([], [stored])

    def test_a_reader_finds_all_rows_while_blocks_are_joined(self, store: Store) -> None:
        log = MetricLog(store, LAYOUT)
        for step in range(FAN_IN - 1):
            log.append(lines_of([row(step)]))

        turn, left = threading.Lock(), [FAN_IN - 1]

        def joined_once(name: str, effect: Callable[[], Any]) -> Any:
            with turn:  # readers are threads
                if name == "read" and left:
                    log.append(lines_of([row(left.pop())]))
            return effect()

        assert steps(GatedStore(store, joined_once)) == list(range(FAN_IN))

    def test_a_corrupt_block_is_named(self, store: Store) -> None:
        MetricLog(store, LAYOUT).append(lines_of([row(1)]))
        [path] = block_paths(store, LAYOUT)
        content = bytearray(store.read(path))
        content[len(content) // 2] ^= 1
        store.delete(path)
        store.put_if_absent(path, bytes(content))
        with pytest.raises(RunDirectoryError, match=r"block-.* is corrupt"):
            read_blocks(store, LAYOUT)

    def test_other_files_are_not_blocks(self, store: Store) -> None:
        MetricLog(store, LAYOUT).append(lines_of([row(1)]))
        store.put_if_absent(f"{LAYOUT.reports.path}/notes.txt", b"mine")
        store.put_if_absent(f"{LAYOUT.reports.path}/block-0000000g-00000001-00000001.jsonl.gz", b"")
        assert steps(store) == [1]
        name = BlockName("0123abcd", 7, 7)
        assert LAYOUT.reports.name_of(LAYOUT.reports.block(name)) == name
