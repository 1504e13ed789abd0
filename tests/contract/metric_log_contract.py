"""The contract of reports on every store: a test class for a store inherits `MetricLogContract`."""

import gzip
import math
import threading
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from sparktrain.errors import RunDirectoryError
from sparktrain.rundir.layout import BlockName, RunLayout
from sparktrain.rundir.metric_log import FAN_IN, MetricLog, block_paths, read_blocks, superseded_paths
from sparktrain.rundir.report_parts import StepRow, lines_of, step_row
from sparktrain.store.base import Store
from tests.unit.store.gated import Crash, FailAt, GatedStore, fault

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

    stride = 1
    """The step between crashes in appends: 1, or more where operations are slow."""

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

    def test_values_and_names_of_any_kind(self, store: Store) -> None:
        values = {"big": 1e300, "tiny": 5e-324, "zero": -0.0, "🎉 accuracy": 0.1 + 0.2, "m" * 200: -1.5, "": 2.0}
        MetricLog(store, LAYOUT).append(lines_of([row(2**63 - 1, **values), row(3, nan=math.nan)]))
        [first, second] = read_blocks(store, LAYOUT)[1]
        assert (first.step, first.metrics) == (2**63 - 1, values)
        assert math.copysign(1, float(first.metrics["zero"])) == -1
        assert [math.isnan(float(value)) for value in second.metrics.values()] == [True]

    def test_a_report_without_metrics_is_kept(self, store: Store) -> None:
        MetricLog(store, LAYOUT).append(lines_of([step_row(0, 1, 0, 1, 5.0, {}), row(2)]))
        assert [(each.step, each.metrics) for each in read_blocks(store, LAYOUT)[1]] == [(1, {}), (2, {"loss": 0.5})]

    def test_blocks_of_older_versions_are_read_beside_parts(self, store: Store) -> None:
        for first in (1, 3):
            name = BlockName("0123abcd", first, first + 1, old=True)
            lines = lines_of([row(first, loss=math.inf), row(first + 1)])
            store.put_if_absent(LAYOUT.reports.block(name), gzip.compress(lines))
        MetricLog(store, LAYOUT).append(lines_of([row(5), row(6, more=1.0)]))
        assert steps(store) == [1, 2, 3, 4, 5, 6]
        found = {each.step: each.metrics for each in read_blocks(store, LAYOUT)[1]}
        assert (found[3], found[6]) == ({"loss": math.inf}, {"more": 1.0})

    def test_the_next_driver_deletes_what_a_dead_one_left_beside_a_joined_part(self, store: Store) -> None:
        def dies(name: str, effect: Callable[[], Any]) -> Any:
            if name.startswith("delete") and len(store.list(LAYOUT.reports.path)) > FAN_IN:
                raise Crash
            return effect()

        assert until_crash(MetricLog(GatedStore(store, dies), LAYOUT)) == FAN_IN - 1
        assert len(superseded_paths(store, LAYOUT.reports)) == FAN_IN
        assert steps(store) == list(range(FAN_IN))
        MetricLog(store, LAYOUT).append(lines_of([row(FAN_IN)]))
        assert superseded_paths(store, LAYOUT.reports) == ()
        assert len(store.list(LAYOUT.reports.path)) == 2
        assert steps(store) == list(range(FAN_IN + 1))

    def test_a_joined_part_that_cannot_be_written_is_written_later(self, store: Store) -> None:
        failing = [True]

        def fails(name: str, effect: Callable[[], Any]) -> Any:
            if failing and name == "put" and len(store.list(LAYOUT.reports.path)) >= FAN_IN:
                raise fault()
            return effect()

        log = MetricLog(GatedStore(store, fails), LAYOUT)
        for step in range(FAN_IN):
            log.append(lines_of([row(step)]))  # the last one is durable, though no join is
        assert len(store.list(LAYOUT.reports.path)) == FAN_IN
        failing.clear()
        log.append(lines_of([row(FAN_IN)]))
        assert len(store.list(LAYOUT.reports.path)) == 1
        assert steps(store) == list(range(FAN_IN + 1))

    def test_rows_of_an_append_that_fails_after_its_write_are_there_once(self, store: Store) -> None:
        log = MetricLog(GatedStore(store, FailAt(0, "after", fault())), LAYOUT)
        with pytest.raises(OSError, match="the store failed"):
            log.append(lines_of([row(1)]))
        log.append(lines_of([row(1), row(2)]))
        assert steps(store) == [1, 2]

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
        crashes = list(product(range(FAN_IN - 2, FAN_IN + 6), ("before", "after")))
        for index, when in crashes[:: self.stride]:
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
        with pytest.raises(RunDirectoryError, match=r"part-.*parquet is corrupt .*put a copy back, or delete it"):
            read_blocks(store, LAYOUT)

    def test_other_files_are_not_blocks(self, store: Store) -> None:
        MetricLog(store, LAYOUT).append(lines_of([row(1)]))
        store.put_if_absent(f"{LAYOUT.reports.path}/notes.txt", b"mine")
        store.put_if_absent(f"{LAYOUT.reports.path}/block-0000000g-00000001-00000001.jsonl.gz", b"")
        assert steps(store) == [1]
        name = BlockName("0123abcd", 7, 7)
        assert LAYOUT.reports.name_of(LAYOUT.reports.block(name)) == name
