"""Drivers of one run that die, and agents that are simulated: in one event loop, over a store in memory."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count, cycle
from typing import Any, TypeVar
from unittest.mock import patch

from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import AgentId, Generation, Member, TrialId
from sparktrain.cluster.token_renewer import TokenKeeper
from sparktrain.display.progress import NullDisplay
from sparktrain.driver import coordinator, journal_writer
from sparktrain.driver.agent_server import Server
from sparktrain.driver.continuation import program
from sparktrain.driver.coordinator import TICK_S, Coordinator
from sparktrain.driver.options import SweepOptions
from sparktrain.driver.prepare import attached_run
from sparktrain.driver.prepare.attached_run import attach
from sparktrain.driver.prepare.checked_call import CheckedCall, compose
from sparktrain.driver.prepare.naming import take_name
from sparktrain.driver.prepare.owned_run import claim
from sparktrain.driver.prepare.ready_run import request_of
from sparktrain.driver.prepare.run_definition import RunDefinition
from sparktrain.driver.run_request import RunOutcome
from sparktrain.protocol import messages as m
from sparktrain.protocol.member_call import MemberCall
from sparktrain.protocol.memory_transport import MemoryTransport
from sparktrain.protocol.transport import Link, LinkClosedError
from sparktrain.rundir import metric_log
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.reader import Tail
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.trial_result import TrialResult
from sparktrain.search.sampler import Observation, PastSuggestion, Sampler, Suggestion
from sparktrain.search.space import grid
from sparktrain.state.outcome import Failure, FailureKind, Outcome, Report
from sparktrain.state.records import AnyRecord, GangFormed, TrialConcluded
from tests.support.run_stages import in_store
from tests.unit.scripted import of_a_script
from tests.unit.store.gated import Crash, Gate, GatedStore, MemoryStore

T = TypeVar("T")
NAME = "sweep"
DEADLINE_S = 30.0


@of_a_script
def train(x: int) -> float:
    """Never called: agents answer for it, with `outcome`."""
    raise NotImplementedError


def outcome(x: int) -> Outcome:
    """What a trial comes to: each seventh raises."""
    if x % 7 == 3:
        return Outcome(0.1, failure=Failure(FailureKind.EXCEPTION, f"ValueError: {x}"))
    return Outcome(0.1, metrics={"y": float(x * x)})


def whole(name: str, effect: Callable[[], Any]) -> Any:
    """The gate of a driver that lives."""
    return effect()


class QuickClock(SystemClock):
    """Polls without a pause."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds if seconds >= TICK_S else 0.0)


class World:
    """What outlives drivers: the store, and what agents and users have got so far."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.started: list[tuple[TrialId, Generation]] = []
        """In the order in which agents got them."""
        self.ended: list[TrialResult] = []
        """Ends of trials that the user has seen."""
        self.outcome: Callable[[TrialId, int], Outcome] = lambda trial, x: outcome(x)
        """What a trial comes to, by its number and its x."""
        self.again: set[int] = set()
        """Trials to retry, regardless of their results."""
        self._numbers = count()
        self._tail = Tail(self.store, RunLayout(NAME).journal)
        self._records: list[AnyRecord] = []

    def name(self) -> str:
        """Of an agent, or of a driver, that never was there before."""
        return f"n{next(self._numbers)}"

    def records(self) -> list[AnyRecord]:
        """All that is durable now."""
        found = self._tail.read_new()
        self._records = list(found.records) if found.afresh else [*self._records, *found.records]
        return self._records

    def start(self, member: Member) -> None:
        """An agent gets the command to start `member`: only durable records may have led to that."""
        key, records = (member.trial, member.generation), self.records()
        assert key not in self.started, f"{member} is started twice"
        self.started.append(key)
        formed = [(each.trial, each.generation) for each in records if isinstance(each, GangFormed)]
        assert key in formed, f"{member} is started before its gang is in the journal"
        done = {each.trial for each in records if isinstance(each, TrialConcluded) and each.status.observed}
        assert member.trial not in done - self.again, f"{member} is started, and its trial has a result"

    def end(self, trial: TrialResult) -> None:
        """The user sees the end of a trial: it must be durable."""
        self.ended.append(trial)
        ends = {each.trial: each.status for each in self.records() if isinstance(each, TrialConcluded)}
        assert ends.get(trial.id) == trial.status, f"trial {trial.id} is reported as {trial.status}, and is not"
        if trial.status.observed and trial.generations:
            assert (trial.id, trial.generations) in self.reported(), f"the report of trial {trial.id} is not stored"

    def reported(self) -> set[tuple[int, int]]:
        """Trials and generations of the reports that are durable now."""
        return {(row.trial, row.generation) for row in metric_log.read_blocks(self.store, RunLayout(NAME))[1]}


@dataclass
class Driver:
    """One driver with its agents. `dead` once its gate has crashed: nothing that is left of it counts."""

    world: World
    call: CheckedCall
    gate: Gate
    agents: int = 2
    dead: asyncio.Event = field(default_factory=asyncio.Event)
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set it for Ctrl-C: the run is stopped, and ends as it can."""
    wrong: list[str] = field(default_factory=list)
    tokens: TokenKeeper | None = None

    async def run(self) -> RunOutcome:
        """Resume the run to its end. Raises Crash when the driver dies, or what ended the run."""
        call = in_store(self.call, GatedStore(self.world.store, self._gate))
        transport = MemoryTransport()
        made = Coordinator(Server(transport.listener, QuickClock(), {}, ()), QuickClock())
        who = DriverIdentity(host="h", pid=1, started=0.0, sparktrain="1")
        named = take_name(replace(attach(call), tokens=self.tokens))
        work = request_of(claim(named, who), self.agents, Watcher(self))
        await made.open()
        dialers = [transport.dialer(self.world.name()) for _ in range(self.agents)]
        attending = [asyncio.create_task(Agent(self, dialer).attend()) for dialer in dialers]
        running, dying = asyncio.create_task(made.run(work)), asyncio.create_task(self.dead.wait())
        stopping = asyncio.create_task(self._stop(made))
        try:
            await asyncio.wait({running, dying}, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
            if self.dead.is_set():
                raise Crash
            assert running.done(), "the run does not end"
            return running.result()
        finally:
            for dialer in dialers:
                dialer.vanish()
            await made.close("the driver is gone")
            tasks = (running, dying, stopping, *attending)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert not self.wrong, self.wrong[0]

    async def _stop(self, made: Coordinator) -> None:
        await self.interrupted.wait()
        made.stop("interrupted by Ctrl-C", 0.0)

    def _gate(self, name: str, effect: Callable[[], Any]) -> Any:
        try:
            return self.gate(name, effect)
        except Crash:
            self.dead.set()
            raise

    @contextmanager
    def checked(self) -> Iterator[None]:
        """What is wrong is kept for the test: the loop would take it for a fault of its own."""
        try:
            yield
        except AssertionError as error:
            self.wrong.append(str(error))


class Watcher(NullDisplay):
    """The user of a driver."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def trial_ended(self, trial: TrialResult) -> None:
        if not self._driver.dead.is_set():
            with self._driver.checked():
                self._driver.world.end(trial)


class Agent:
    """Answers each start at once."""

    def __init__(self, driver: Driver, dialer: Any) -> None:
        self._driver = driver
        self._dialer = dialer
        self._id = AgentId(driver.world.name())

    async def attend(self) -> None:
        """Join, and obey until the stream ends."""
        with suppress(LinkClosedError):
            link = await self._dialer.attend(1.0)
            link.post(m.Join(agent=self._id, slot=0, host="host", pid=0, versions={}))
            await link.receive()
            link.post(m.Ready())
            while not self._driver.dead.is_set():
                self._obey(link, await link.receive())

    def _obey(self, link: Link, message: m.Message) -> None:
        if self._driver.dead.is_set():
            return
        match message:
            case m.Prepare(run=run):
                link.post(m.Ready(run))
            case m.StartMember(member=member, call=MemberCall(params=params)):
                with self._driver.checked():
                    self._driver.world.start(member)
                link.post(m.MemberStarted(member, 0))
                link.post(m.MemberReported(member, (Report(1, {"y": float(params["x"])}),)))
                link.post(m.MemberEnded(member, self._driver.world.outcome(member.trial, params["x"])))
                link.post(m.MemberStored(member))


def play(history: Coroutine[Any, Any, T], busy: Sequence[int] = (0,)) -> T:
    """Run `history` without threads: between turns of the loop, journals are written and reports are read.

    A group of records takes as many turns of the loop as `busy` has: its numbers one after the other, in a circle.
    """
    turns = cycle(busy)

    async def aside(work: Callable[[], Any], name: str = "") -> Any:
        for _ in range(1 + next(turns)):
            await asyncio.sleep(0)
        return work()

    with (
        patch.object(journal_writer, "aside", aside),
        patch.object(coordinator, "aside", aside),
        patch.object(metric_log, "READERS", 1),
        patch.object(attached_run, "installed_versions", lambda _: {}),  # 20 ms for each driver
    ):
        return asyncio.run(history)


class Climber(Sampler):
    """Proposes what follows from all its observations, and from their order."""

    learns = True

    def __init__(self, trials: int) -> None:
        self.total = trials
        self._left = trials
        self._state = 1

    def suggest(self, count: int) -> Suggestion:
        cases = []
        for _ in range(min(count, self._left)):
            self._left -= 1
            self._state = (self._state * 48271 + count) % 2147483647
            cases.append({"x": self._state % 1000})
        return Suggestion(tuple(cases), exhausted=not self._left, memo={"state": self._state})

    def observe(self, observation: Observation) -> None:
        y = int(observation.metrics.get("y", -1))
        self._state = (self._state * 31 + observation.trial * 17 + observation.params["x"] + y) % 2147483647

    def restore(self, history: Sequence[PastSuggestion | Observation]) -> None:
        for each in history:
            if isinstance(each, Observation):
                self.observe(each)
            else:
                self._left -= len(each.cases)
                self._state = each.memo["state"]


class Learning(RunDefinition):
    """A run with a sampler that learns."""

    def new_sampler(self, slots: int = 1) -> Climber:
        return Climber(self.spec.trials or 0)


@cache
def prepared(trials: int, learning: bool = False) -> CheckedCall:
    """A sweep of so many trials; its store is a driver's matter."""
    options = SweepOptions(metric="y", mode="max", name=NAME, backend="none", preload=[], seed=1, trials=trials)
    # The cache serves tests with and without the settings that others have made in this process.
    with patch.object(program, "_changed", lambda target, sources: {}):
        made = compose(train, grid(x=list(range(trials))), options)
    return replace(made, definition=Learning(**vars(made.definition))) if learning else made
