"""Records are written in groups, and what depends on them is done after them."""

import asyncio
import threading
from collections.abc import Coroutine, Sequence

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import AgentId, Generation, Member, RunId, TrialId
from sparktrain.driver import journal_writer as module
from sparktrain.driver.journal_writer import CHECK_S, JournalPort, JournalWriter
from sparktrain.errors import DeposedError, StoreTimeoutError
from sparktrain.rundir.journal.writer import Compaction
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.outcome import Report
from sparktrain.state.records import AnyRecord, GangFormed, TrialReported

A, B = AgentId("a"), AgentId("b")
MEMBER = Member(RunId("run"), TrialId(0), Generation(1))


class SlowCompaction(Compaction):
    """Puts a snapshot when it is let to."""

    def __init__(self, journal: "SlowJournal") -> None:
        self._journal = journal

    def write(self, records: Sequence[AnyRecord]) -> None:
        assert self._journal.free_to_compact.acquire(timeout=30.0)
        if self._journal.no_snapshot is not None:
            raise self._journal.no_snapshot
        self._journal.snapshots.append(list(records))


class SlowJournal(JournalPort):
    """Writes a group when it is let to."""

    def __init__(self) -> None:
        self.groups: list[list[AnyRecord]] = []
        self.snapshots: list[list[AnyRecord]] = []
        self.free = threading.Semaphore(0)
        self.free_to_compact = threading.Semaphore(0)
        self.no_snapshot: Exception | None = None
        self.error: Exception | None = None
        self.checks = self.settled = 0

    def append(self, records: Sequence[AnyRecord]) -> None:
        assert self.free.acquire(timeout=30.0)
        if self.error is not None:
            raise self.error
        self.groups.append(list(records))

    def compaction(self) -> Compaction:
        return SlowCompaction(self)

    def settle(self) -> None:
        if self.error is not None:
            raise self.error
        self.settled += 1

    def check(self) -> None:
        self.checks += 1
        if self.error is not None:
            raise self.error


class HandClock(SystemClock):
    """A clock that the test sets."""

    at = 0.0

    def now(self) -> float:
        return self.at


class Desk:
    """A journal writer, and what it has done."""

    def __init__(self) -> None:
        self.journal = SlowJournal()
        self.compact_after = module.COMPACT_AFTER
        self.done: list[do.Command] = []
        self.failed: list[tuple[Exception, list[do.Command]]] = []
        self.clock = HandClock()
        self.beside: list[asyncio.Task[None]] = []
        self.scribe = self.new_scribe()
        self.writing: asyncio.Task[None] | None = None

    def new_scribe(self, records: Sequence[AnyRecord] = ()) -> JournalWriter:
        return JournalWriter(self.journal, records, self.done.append, self.clock, self.spawn, self.compact_after)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        self.beside.append(asyncio.create_task(work))

    async def compact(self) -> None:
        """Let each compaction come to its end."""
        for task in self.beside:
            self.journal.free_to_compact.release()
            await asyncio.wait_for(task, 30.0)
        self.beside.clear()

    def take(self, *commands: do.Command) -> None:
        for command in commands:
            self.scribe.take(command)
        if not self.scribe.idle:
            self.writing = asyncio.create_task(self.scribe.write(lambda *failed: self.failed.append(failed)))

    async def write(self, groups: int = 1) -> None:
        for _ in range(groups):
            self.journal.free.release()
        assert self.writing is not None
        await asyncio.wait_for(self.writing, 30.0)


@pytest.fixture
async def desk() -> Desk:
    return Desk()


def formed(trial: int = 0) -> do.WriteRecord:
    return do.WriteRecord(GangFormed(trial=TrialId(trial), generation=Generation(1), hosts=("h",)))


def reported(step: int) -> do.WriteRecord:
    return do.WriteRecord(TrialReported(trial=TrialId(0), report=Report(step, {})))


START = do.PlaceMember(A, MEMBER, 1, {})
STOP_A, STOP_B = do.Send(A, m.StopMember(MEMBER, 0.0)), do.Send(B, m.StopMember(MEMBER, 0.0))


async def test_a_command_waits_for_the_records_before_it(desk: Desk) -> None:
    desk.take(formed(), START)
    assert desk.done == []
    await desk.write()
    assert desk.done == [START]


async def test_without_records_nothing_waits(desk: Desk) -> None:
    desk.take(START)
    assert desk.done == [START]


async def test_what_depends_on_no_record_does_not_wait_unless_its_agent_does(desk: Desk) -> None:
    desk.take(formed(), START, STOP_B, STOP_A)
    assert desk.done == [STOP_B]
    await desk.write()
    assert desk.done == [STOP_B, START, STOP_A]


async def test_records_that_come_meanwhile_are_the_next_group(desk: Desk) -> None:
    conclude = [do.ConcludeTrial(TrialId(number)) for number in range(3)]
    desk.take(formed(0), conclude[0])
    await asyncio.sleep(0)
    desk.take(formed(1), conclude[1])
    desk.take(formed(2), conclude[2])
    await desk.write(groups=2)
    assert [len(group) for group in desk.journal.groups] == [1, 2]
    assert desk.done == conclude


async def test_a_journal_that_fails_gives_back_what_was_not_done(desk: Desk) -> None:
    desk.journal.error = DeposedError("another driver")
    desk.take(formed(), START, STOP_A)
    await desk.write()
    assert desk.failed == [(desk.journal.error, [START])]
    assert desk.done == [STOP_A], "who was stopped is stopped, whatever becomes of the journal"
    end = do.EndRun(RunId("run"), "stopped", "")
    desk.take(formed(), START, do.ConcludeTrial(TrialId(0)), STOP_B, end)
    assert desk.done == [STOP_A, STOP_B, end]
    assert desk.scribe.idle


@pytest.fixture
def few(desk: Desk) -> Desk:
    """A desk at which four records are worth a compaction."""
    desk.compact_after = 4
    desk.scribe = desk.new_scribe()
    return desk


def steps(snapshot: list[AnyRecord]) -> list[int]:
    return [each.report.step for each in snapshot if isinstance(each, TrialReported)]


async def test_the_journal_is_compacted_now_and_then(few: Desk) -> None:
    few.take(*(reported(step) for step in range(5)))
    await few.write()
    await few.compact()
    few.take(*(reported(step) for step in range(5, 7)))
    await few.write()
    assert few.beside == []
    few.take(*(reported(step) for step in range(7, 9)))
    await few.write()
    await few.compact()
    assert [steps(snapshot) for snapshot in few.journal.snapshots] == [[4], [8]]


async def test_nothing_waits_for_a_compaction(few: Desk) -> None:
    few.take(*(reported(step) for step in range(5)))
    await few.write()
    few.take(*(formed(trial) for trial in range(1, 21)), START)
    await few.write()
    assert few.done == [START]
    assert (len(few.beside), few.journal.snapshots) == (1, []), "and one runs at a time"
    await few.compact()
    few.take(formed(21))
    await few.write()
    await few.compact()
    first, second = few.journal.snapshots
    assert (len(first), len(second)) == (1, 22), "what came beside the first is in the second"


async def test_a_journal_that_cannot_be_compacted_goes_on(few: Desk) -> None:
    for error in (StoreTimeoutError("slow"), DeposedError("another driver")):
        few.journal.no_snapshot = error
        few.take(*(reported(step) for step in range(5)), START)
        await few.write()
        await few.compact()
    assert (few.failed, few.done) == ([], [START, START])
    few.journal.no_snapshot = None
    few.take(*(reported(step) for step in range(5, 10)))
    await few.write()
    await few.compact()
    assert [steps(snapshot) for snapshot in few.journal.snapshots] == [[9]]


async def test_what_compactions_write_grows_with_the_journal_and_no_faster(desk: Desk) -> None:
    """Though nothing shrinks: each trial has been formed and has one result."""
    trials = 20_000
    for first in range(0, trials, 1000):
        desk.take(*(formed(trial) for trial in range(first, first + 1000)))
        await desk.write()
        await desk.compact()
    assert sum(map(len, desk.journal.snapshots)) < 1.5 * trials
    assert len(desk.journal.snapshots) >= 3


async def test_a_journal_is_not_compacted_again_by_each_driver(desk: Desk) -> None:
    """It starts with what a compaction would leave."""
    before = [formed(trial).record for trial in range(3 * module.COMPACT_AFTER)]
    desk.scribe = desk.new_scribe(before)
    desk.take(*(formed(trial) for trial in range(5 * module.COMPACT_AFTER)))
    await desk.write(groups=5 * module.COMPACT_AFTER // module.MOST_RECORDS)
    assert desk.beside == []
    reports = [reported(step).record for step in range(3 * module.COMPACT_AFTER)]
    desk.scribe = desk.new_scribe(reports)
    desk.take(formed(1))
    await desk.write()
    await desk.compact()
    assert [len(snapshot) for snapshot in desk.journal.snapshots] == [2]


async def test_a_driver_with_nothing_to_write_asks_who_is_in_charge(desk: Desk) -> None:
    desk.take(STOP_A)
    assert desk.journal.checks == 0
    desk.clock.at += CHECK_S
    desk.take(STOP_A)
    await desk.write()
    assert (desk.journal.checks, desk.failed) == (1, [])
    desk.journal.error = StoreTimeoutError("slow")
    desk.clock.at += CHECK_S
    desk.take(STOP_A)
    await desk.write()
    assert desk.failed == [], "it matters once there is something to write"
    desk.journal.error = DeposedError("another driver")
    desk.clock.at += CHECK_S
    desk.take(STOP_A)
    await desk.write()
    assert desk.failed == [(desk.journal.error, [])]


async def test_a_driver_that_writes_all_the_time_asks_as_often(desk: Desk) -> None:
    for number in range(4):
        desk.clock.at += 0.6 * CHECK_S
        desk.take(formed(number))
        await desk.write()
    assert (len(desk.journal.groups), desk.journal.checks) == (4, 2)


async def test_it_tells_how_long_the_store_takes(desk: Desk) -> None:
    assert desk.scribe.behind_s == 0.0
    desk.take(formed())
    await asyncio.sleep(0)
    desk.clock.at += 2.0
    assert desk.scribe.behind_s == 2.0
    await desk.write()
    assert desk.scribe.behind_s == 0.0


async def test_the_newest_records_are_followed_by_something_once_it_is_quiet(desk: Desk) -> None:
    """So that they are not taken, when they are lost, for records that never counted."""
    desk.take(formed())
    await desk.write()
    assert desk.journal.settled == 0, "not in the way of what comes next"
    for _ in range(3):
        desk.clock.at += CHECK_S
        desk.take(STOP_A)
        await desk.write()
    assert (desk.journal.settled, desk.journal.checks) == (1, 2)


async def test_what_follows_the_newest_records_is_tried_again_before_others_are_written(desk: Desk) -> None:
    """The journal takes no other batch of a number than the one that was tried before."""
    desk.take(formed())
    await desk.write()
    desk.journal.error = StoreTimeoutError("slow")
    desk.clock.at += CHECK_S
    desk.take(STOP_A)
    await desk.write()
    assert desk.failed == []
    desk.journal.error = None
    desk.take(formed(1))
    await desk.write()
    assert (desk.journal.settled, [len(group) for group in desk.journal.groups]) == (1, [1, 1])
