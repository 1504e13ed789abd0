"""What many short trials cost their driver: bytes of the journal, memory, and the work of showing progress. Counted."""

import asyncio
import tracemalloc
from collections import deque
from typing import Any

from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import AgentId, RunId
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.driver.journal_writer import JournalWriter
from sparktrain.driver.progress_builder import Tally, progress_of
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.journal_file import BATCH
from sparktrain.rundir.journal.reader import read
from sparktrain.rundir.journal.writer import Journal
from sparktrain.rundir.layout import RunLayout
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import Outcome
from sparktrain.state.records import DriverStarted
from sparktrain.state.recovery import recovered
from sparktrain.state.trial import TrialStatus
from tests.support.call_count import counted
from tests.support.limits import run_limits
from tests.unit.store.gated import MemoryStore

RUN = RunId("run")
JOURNAL = RunLayout("run").journal
WHO = DriverIdentity(host="host", pid=1, started=0.0, sparktrain="1.0.0")
MOST_WRITTEN = 3.0
"""Bytes of all files of a journal, over the bytes of its records."""
ONCE = 10_000
"""Bytes of records from which on that counts: the file of a driver's claim is as long as its first few."""
MOST_BYTES = 5_000
"""Of memory for each trial: 100,000 of them have half of a GiB."""


class CountingStore(MemoryStore):
    """Counts what is put, and how much of it are records that come for the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.put = self.records = 0
        self.worst = 0.0
        """The largest ratio of both after any write, see `ONCE`."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.put += len(data)
        if BATCH in path:
            self.records += len(data) - data.index(b"\n") - 1
        if self.records > ONCE:
            self.worst = max(self.worst, self.put / self.records)
        return super().put_if_absent(path, data)


class ShortTrials:
    """A driver of trials that end as soon as they start, on one agent; nothing is shown."""

    def __init__(self, store: MemoryStore) -> None:
        self.machine = Machine(15.0)
        self.ended = 0
        self._beside: set[asyncio.Task[None]] = set()
        self._inbox: deque[on.Event] = deque()
        journal, _ = Journal.claim(store, JOURNAL, WHO)
        self._scribe = JournalWriter(journal, (), self._perform, SystemClock(), self._background)

    async def run(self, trials: int) -> None:
        """Bring that many trials to their ends, and the journal up to date."""
        agent, limits = AgentId("agent"), run_limits(total=trials, agents=1, lookahead=1)
        self._inbox += [
            on.AgentJoined(0.0, agent, 0, "host-1", "10.0.0.1", 0),
            on.RunStarted(0.0, RUN, limits, (), DriverStarted(plan="plan", at=1.7e9)),
            on.AgentSent(0.0, agent, m.Ready(RUN)),
        ]
        self._left = trials
        while self._inbox or not self._scribe.idle or self._beside:
            while self._inbox:
                for command in self.machine.handle(self._inbox.popleft()):
                    self._scribe.take(command)
            if not self._scribe.idle:
                await self._scribe.write(_raise)
            await asyncio.gather(*self._beside)

    def _background(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    def _perform(self, command: do.Command) -> None:
        if isinstance(command, do.Suggest):
            count, self._left = min(command.count, self._left), max(0, self._left - command.count)
            cases = tuple({"x": number, "dropout": 0.5} for number in range(count))
            self._inbox.append(on.Suggested(1.0, RUN, cases, exhausted=self._left == 0))
        elif isinstance(command, do.PlaceMember):
            outcome = Outcome(0.05, metrics={"accuracy": 0.5})
            self._inbox.append(on.AgentSent(2.0, command.agent, m.MemberStarted(command.member, 0)))
            self._inbox.append(on.AgentSent(2.1, command.agent, m.MemberEnded(command.member, outcome)))
        elif isinstance(command, do.ConcludeTrial):
            self.ended += 1


def _raise(error: Exception, dropped: list[do.Command]) -> None:
    raise error


async def test_a_journal_writes_less_than_three_times_its_records_whenever_it_is_asked() -> None:
    store, trials = CountingStore(), 2_100
    await ShortTrials(store).run(trials)
    assert sum("snapshot" in path for path in store.files) == 2, "it is compacted twice"
    assert 1.5 < store.worst < MOST_WRITTEN
    found = recovered(on.RunStarted(0.0, RUN, run_limits(), read(store, JOURNAL).records, DriverStarted(plan="plan")))
    assert [trial.status for trial in found.trials.values()] == [TrialStatus.SUCCEEDED] * trials


async def test_the_memory_of_a_short_trial_is_bounded() -> None:
    few, many = await _memory(100), await _memory(1_100)
    assert 0 < (many - few) / 1_000 < MOST_BYTES


async def _memory(trials: int) -> int:
    """Bytes that a driver holds at most while it runs so many trials; those of the store are not its own."""
    store = MemoryStore()
    tracemalloc.start()
    try:
        await ShortTrials(store).run(trials)
        return tracemalloc.get_traced_memory()[1] - sum(map(len, store.files.values()))
    finally:
        tracemalloc.stop()


async def test_progress_costs_the_same_after_any_number_of_trials() -> None:
    few, many = await _calls(10), await _calls(500)
    assert few == many


async def _calls(trials: int) -> int:
    """Calls of functions for one look at a run with only ended trials, each read of a trial counted as one."""
    driver = ShortTrials(MemoryStore())
    await driver.run(trials)
    sweep = driver.machine.last
    assert sweep is not None
    assert driver.ended == trials
    sweep.trials = read_counting = CountingTrials(sweep.trials)
    tally = Tally(SweepSpec(name="run", metric="accuracy", mode="max"), sweep.trials.values())
    read_counting.reads = 0
    work: Any = FakeWork(trials)
    return counted(lambda: progress_of(driver.machine, work, 3.0, tally=tally)) + read_counting.reads


class CountingTrials(dict[Any, Any]):
    """Counts the trials that are read."""

    reads = 0

    def __getitem__(self, key: Any) -> Any:
        self.reads += 1
        return super().__getitem__(key)

    def values(self) -> Any:
        self.reads += len(self)
        return super().values()


class FakeWork:
    """As much of a run as progress needs."""

    def __init__(self, total: int) -> None:
        self.spec = SweepSpec(name="run", metric="accuracy", mode="max")
        self.total = total
        self.agents = 1
