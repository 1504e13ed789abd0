"""Records are written in groups, and what depends on them is done after them."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from sparktrain.clock import SystemClock
from sparktrain.driver import scribe as module
from sparktrain.driver.scribe import CHECK_S, Book, Scribe
from sparktrain.errors import DeposedError, StoreTimeoutError
from sparktrain.ids import AgentId, Generation, Member, RunId, TrialId
from sparktrain.state import commands as do
from sparktrain.state.outcome import Report
from sparktrain.state.records import AnyRecord, GangFormed, TrialReported

A, B = AgentId("a"), AgentId("b")
MEMBER = Member(RunId("run"), TrialId(0), Generation(1))


class SlowBook(Book):
    """Writes a group when it is let to."""

    def __init__(self) -> None:
        self.groups: list[list[AnyRecord]] = []
        self.snapshots: list[list[AnyRecord]] = []
        self.free = threading.Semaphore(0)
        self.error: Exception | None = None
        self.checks = 0

    def append(self, records: Sequence[AnyRecord]) -> None:
        assert self.free.acquire(timeout=30.0)
        if self.error is not None:
            raise self.error
        self.groups.append(list(records))

    def compact(self, records: Sequence[AnyRecord]) -> None:
        if self.error is not None:
            raise self.error
        self.snapshots.append(list(records))

    def check(self) -> None:
        self.checks += 1
        if self.error is not None:
            raise self.error


class HandClock(SystemClock):
    """Goes when it is told to."""

    at = 0.0

    def now(self) -> float:
        return self.at


class Desk:
    """A scribe, and what it has done."""

    def __init__(self) -> None:
        self.book = SlowBook()
        self.done: list[do.Command] = []
        self.failed: list[tuple[Exception, list[do.Command]]] = []
        self.clock = HandClock()
        self.scribe = Scribe(self.book, [], self.done.append, self.clock)
        self.writing: asyncio.Task[None] | None = None

    def take(self, *commands: do.Command) -> None:
        for command in commands:
            self.scribe.take(command)
        if not self.scribe.idle:
            self.writing = asyncio.create_task(self.scribe.write(lambda *failed: self.failed.append(failed)))

    async def write(self, groups: int = 1) -> None:
        for _ in range(groups):
            self.book.free.release()
        assert self.writing is not None
        await asyncio.wait_for(self.writing, 30.0)


@pytest.fixture
async def desk() -> Desk:
    return Desk()


def formed(trial: int = 0) -> do.WriteRecord:
    return do.WriteRecord(GangFormed(trial=TrialId(trial), generation=Generation(1), hosts=("h",)))


def reported(step: int) -> do.WriteRecord:
    return do.WriteRecord(TrialReported(trial=TrialId(0), report=Report(step, {})))


START = do.StartMember(A, MEMBER, 1, {})
STOP_A, STOP_B = do.StopMember(A, MEMBER, 0.0), do.StopMember(B, MEMBER, 0.0)


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
    assert [len(group) for group in desk.book.groups] == [1, 2]
    assert desk.done == conclude


async def test_a_journal_that_fails_gives_back_what_was_not_done(desk: Desk) -> None:
    desk.book.error = DeposedError("another driver")
    desk.take(formed(), START, STOP_A)
    await desk.write()
    assert desk.failed == [(desk.book.error, [START])]
    assert desk.done == [STOP_A], "who was stopped is stopped, whatever becomes of the journal"
    end = do.EndRun(RunId("run"), "stopped", "")
    desk.take(formed(), START, do.ConcludeTrial(TrialId(0)), STOP_B, end)
    assert desk.done == [STOP_A, STOP_B, end]
    assert desk.scribe.idle


async def test_the_journal_is_compacted_now_and_then(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPACT_AFTER", 3)
    desk.scribe = Scribe(desk.book, [], desk.done.append, desk.clock)
    desk.take(*(reported(step) for step in range(5)))
    await desk.write()
    assert [[each.report.step for each in snapshot] for snapshot in desk.book.snapshots] == [[4]]
    desk.take(reported(5))
    await desk.write()
    assert len(desk.book.snapshots) == 1


async def test_a_journal_that_cannot_be_compacted_goes_on(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPACT_AFTER", 2)
    desk.scribe = Scribe(desk.book, [], desk.done.append, desk.clock)
    monkeypatch.setattr(desk.book, "compact", lambda records: (_ for _ in ()).throw(StoreTimeoutError("slow")))
    desk.take(reported(0), reported(1), START)
    await desk.write()
    assert (desk.failed, desk.done) == ([], [START])
    monkeypatch.undo()
    desk.take(*(reported(step) for step in range(2, 2 + module.COMPACT_AFTER)))
    await desk.write(groups=2)
    assert [len(snapshot) for snapshot in desk.book.snapshots] == [1]


async def test_a_driver_with_nothing_to_write_asks_who_is_in_charge(desk: Desk) -> None:
    desk.take(STOP_A)
    assert desk.book.checks == 0
    desk.clock.at += CHECK_S
    desk.take(STOP_A)
    await desk.write()
    assert (desk.book.checks, desk.failed) == (1, [])
    desk.book.error = StoreTimeoutError("slow")
    desk.clock.at += CHECK_S
    desk.take(STOP_A)
    await desk.write()
    assert desk.failed == [], "it matters once there is something to write"
    desk.book.error = DeposedError("another driver")
    desk.clock.at += CHECK_S
    desk.take(STOP_A)
    await desk.write()
    assert desk.failed == [(desk.book.error, [])]


async def test_it_tells_how_long_the_store_takes(desk: Desk) -> None:
    assert desk.scribe.behind_s == 0.0
    desk.take(formed())
    await asyncio.sleep(0)
    desk.clock.at += 2.0
    assert desk.scribe.behind_s == 2.0
    await desk.write()
    assert desk.scribe.behind_s == 0.0
