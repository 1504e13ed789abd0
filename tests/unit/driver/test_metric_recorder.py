"""Reports are stored before the records that come after them."""

import logging
from collections.abc import Sequence

import pytest

from sparktrain.base.ids import Generation, Member, RunId, TrialId
from sparktrain.driver.metric_recorder import FLUSH_S, MetricRecorder, WaitingReports
from sparktrain.rundir.layout import RunLayout
from sparktrain.rundir.metric_log import MetricLog, read_blocks
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.outcome import FailureKind, Report, Restart
from sparktrain.state.records import (
    AnyRecord,
    CheckpointAcknowledged,
    GangFormed,
    GangRestarted,
    RunEnded,
    TrialConcluded,
    TrialReported,
)
from sparktrain.state.trial import TrialStatus
from tests.unit.clocks import HandClock
from tests.unit.driver.journals import NoJournal
from tests.unit.store.gated import FailAt, GatedStore, MemoryStore, fault

LAYOUT, TRIAL = RunLayout("run"), TrialId(3)
MEMBER = Member(RunId("run"), TRIAL, Generation(2))
REPORTED = TrialReported(trial=TRIAL, report=Report(1, {}))
FORMED = GangFormed(trial=TrialId(4), generation=Generation(1), hosts=("h",))
ENDS: list[AnyRecord] = [
    CheckpointAcknowledged(trial=TRIAL, checkpoint=Checkpoint(Generation(2), 9, "manifest", "digest", 2, None)),
    TrialConcluded(trial=TRIAL, status=TrialStatus.SUCCEEDED),
    GangRestarted(trial=TRIAL, restart=Restart(0, "h", FailureKind.LOST, "gone", 0.0)),
    RunEnded(ending="complete"),
]


class Witness(NoJournal):
    """A journal that knows what was stored before each of its records."""

    def __init__(self, store: MemoryStore) -> None:
        self.seen: list[tuple[str, list[int]]] = []
        self._store = store

    def append(self, records: Sequence[AnyRecord]) -> None:
        self.seen.append((type(records[0]).__name__, stored(self._store)))


def stored(store: MemoryStore) -> list[int]:
    return sorted(row.step for row in read_blocks(store, LAYOUT)[1])


class Bench:
    def __init__(self, index: int = -1, waiting: WaitingReports | None = None) -> None:
        self.store, self.clock = MemoryStore(), HandClock()
        self.journal = Witness(self.store)
        log = MetricLog(GatedStore(self.store, FailAt(index, "before", fault())), LAYOUT)
        self.recorder = MetricRecorder(self.journal, log, self.clock, waiting)

    def report(self, *steps: int) -> None:
        self.recorder.record(MEMBER, [Report(step, {"loss": 0.5}, 12.0) for step in steps])


@pytest.mark.parametrize("record", ENDS, ids=lambda record: type(record).__name__)
def test_reports_are_stored_before_what_they_led_to(record: AnyRecord) -> None:
    bench = Bench()
    bench.report(1, 2)
    bench.recorder.append([FORMED])
    bench.recorder.append([record])
    assert bench.journal.seen == [("GangFormed", []), (type(record).__name__, [1, 2])]
    [row, _] = read_blocks(bench.store, LAYOUT)[1]
    assert (row.trial, row.generation, row.rank, row.time, row.metrics) == (3, 2, 0, 12.0, {"loss": 0.5})


def test_other_records_bring_reports_along_when_these_have_waited() -> None:
    bench = Bench()
    bench.report(1)
    bench.clock.at = FLUSH_S
    bench.recorder.append([REPORTED])
    bench.report(2)
    bench.recorder.append([REPORTED])
    assert bench.journal.seen == [("TrialReported", [1]), ("TrialReported", [1])]


def test_a_journal_without_records_stores_reports_too() -> None:
    bench = Bench()
    bench.report(1)
    bench.recorder.settle()
    assert stored(bench.store) == [1]
    bench.report(2)
    bench.recorder.check()
    assert stored(bench.store) == [1, 2]


def test_a_run_that_reports_nothing_writes_nothing() -> None:
    bench = Bench()
    bench.recorder.append(ENDS)
    bench.recorder.check()
    assert bench.store.files == {}


def test_a_store_that_fails_costs_no_report_and_no_record_comes_before_it() -> None:
    bench = Bench(index=0)
    bench.report(1)
    with pytest.raises(OSError, match="the store failed"):
        bench.recorder.append(ENDS[:1])
    assert bench.journal.seen == []
    bench.report(2)
    bench.recorder.append(ENDS[:1])
    assert bench.journal.seen == [("CheckpointAcknowledged", [1, 2])]


def test_a_long_outage_costs_no_report() -> None:
    bench = Bench(waiting=WaitingReports(memory_bytes=500))
    bench.report(*range(3))
    for step in range(3, 100):
        bench.report(step)
    bench.recorder.append(ENDS[-1:])
    assert stored(bench.store) == list(range(100))
    assert [row.step for row in read_blocks(bench.store, LAYOUT)[1]] == list(range(100)), (
        "in the order of their arrival"
    )
    bench.report(100)
    bench.recorder.append(ENDS[-1:])
    assert stored(bench.store) == list(range(101))


def test_a_store_that_fails_in_the_middle_costs_no_report() -> None:
    bench = Bench(index=2, waiting=WaitingReports(memory_bytes=500))
    for step in range(100):
        bench.report(step)
    with pytest.raises(OSError, match="the store failed"):
        bench.recorder.append(ENDS[:1])
    assert 0 < len(stored(bench.store)) < 100
    assert bench.journal.seen == []
    bench.report(100)
    bench.recorder.append(ENDS[:1])
    assert bench.journal.seen == [("CheckpointAcknowledged", list(range(101)))]


def test_reports_that_come_during_a_write_wait_for_the_next_one() -> None:
    bench = Bench()
    log_append = MetricLog.append

    class Busy(MetricLog):
        def append(self, lines: bytes) -> None:
            log_append(self, lines)
            bench.clock.at += 1.0
            bench.report(int(bench.clock.at))

    bench.recorder = MetricRecorder(bench.journal, Busy(bench.store, LAYOUT), bench.clock)
    bench.report(0)
    bench.recorder.append(ENDS[-1:])
    assert stored(bench.store) == [0]
    bench.recorder.append([REPORTED])
    assert stored(bench.store) == [0], "it has waited for no second"
    bench.clock.at = FLUSH_S
    bench.recorder.append([REPORTED])
    assert stored(bench.store) == [0, 1]


def test_what_waits_for_a_store_has_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(waiting=WaitingReports(memory_bytes=300, file_bytes=200))
    for step in range(8):
        bench.report(step)  # 81 bytes each
    with caplog.at_level(logging.WARNING):
        bench.recorder.append(ENDS[-1:])
    assert stored(bench.store) == [0, 1, 2, 3, 4]
    assert "3 reports" in caplog.text
    caplog.clear()
    bench.report(8)
    bench.recorder.append(ENDS[-1:])
    assert stored(bench.store)[-1] == 8
    assert caplog.text == ""
