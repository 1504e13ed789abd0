"""Coordinators are lost, one after the other, while members train on: no report is lost, and no trial ends twice.

A model of all that takes part: coordinators with a journal and reports that are durable only some time after each
decision, agents with their real outboxes, and members that train whether there is a coordinator or not. Agents are
lost, cut off from a coordinator that lives, late, or join again before the end of their first stream is known.
"""

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from sparktrain.base.ids import AgentId, Member
from sparktrain.config.gang_spec import Role
from sparktrain.driver.settled_messages import SettledMessages
from sparktrain.executor.outbox import Outbox
from sparktrain.protocol import messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state import recovery
from sparktrain.state.losses.adoption import ADOPT_S, Adoptions
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import Failure, FailureKind, Outcome, Report
from sparktrain.state.records import AnyRecord, DriverStarted, GangAdopted, TrialConcluded, TrialsAdded
from sparktrain.state.sweep import Sweep
from sparktrain.state.topology import MemberAddress
from tests.histories.test_gangs import check_journal
from tests.support.limits import run_limits
from tests.unit.state.world import LEASE_S, RUN, World, stage_of

LENGTH = 12
"""Steps of a trial."""
TRIALS = 4
HISTORIES = 150
LATE_S = ADOPT_S + 1.0


@dataclass
class Worker:
    """An agent with its member, which trains whether a coordinator listens or not."""

    name: AgentId
    host: str
    outbox: Outbox = field(default_factory=lambda: Outbox(keeps=True))
    member: Member | None = None
    place: MemberAddress | None = None
    step: int = 0
    entered: bool = False
    held: bool = False
    ended: bool = False
    away: bool = False
    """It has no stream."""

    def offer(self) -> m.HeldMember | None:
        """What it names to the next coordinator."""
        if self.member is None or not self.held:
            return None
        outbox = self.outbox
        return m.HeldMember(
            member=self.member, place=self.place, entered=self.entered, step=outbox.step, standing=outbox.standing
        )


class Office:
    """A coordinator: its machine, its journal, and the reports that it has."""

    def __init__(self, history: "History", records: list[AnyRecord]) -> None:
        self.history = history
        added = sum(len(record.cases) for record in records if isinstance(record, TrialsAdded))
        self.world = World(Machine(LEASE_S), at=history.at, cases=TRIALS - added)
        self.settled = SettledMessages()
        self.durable = len(records)
        self.reports: list[tuple[int, int, int, int]] = []
        self.recorded = self.stored = 0
        self._waiting: deque[tuple[int, do.Command]] = deque()
        self._seen = 0
        start = DriverStarted(plan="p", at=history.at, adopts=bool(records))
        self.world.records = list(records)
        self.feed(on.RunStarted(history.at, RUN, run_limits(**history.limits), tuple(records), start))

    @property
    def progress(self) -> tuple[int, int]:
        """As `JournalWriter.progress`."""
        return len(self.world.records), self.durable

    def feed(self, event: on.Event) -> None:
        running = self.world.running
        if isinstance(event, on.AgentGone):
            running.pop(event.agent, None)
        elif isinstance(event, on.AgentSent) and isinstance(ended := event.message, m.MemberEnded):
            running.pop(event.agent if running.get(event.agent) == ended.member else AgentId(""), None)
        self.world.feed(event)
        self._take()

    def _take(self) -> None:
        """Perform what waits for no record; messages to one agent keep their order."""
        self.world.suggest()
        for command in self.world.commands[self._seen :]:
            mine = getattr(command, "agent", None)
            behind = mine is not None and any(getattr(other, "agent", None) == mine for _, other in self._waiting)
            if isinstance(command, do.RecordReports):
                self.recorded += 1
                self.reports += [
                    (command.member.trial, command.member.generation, command.member.rank, report.step)
                    for report in command.reports
                ]
            elif behind or (command.waits_for_records and self.durable < len(self.world.records)):
                self._waiting.append((len(self.world.records), command))
            else:
                self.history.perform(self, command)
        self._seen = len(self.world.commands)

    def store(self) -> None:
        """The store has answered: reports and records are durable, and commands that waited are performed."""
        self.history.reports += self.reports
        self.reports = []
        self.stored = self.recorded
        self.durable = len(self.world.records)
        while self._waiting and self._waiting[0][0] <= self.durable:
            self.history.perform(self, self._waiting.popleft()[1])

    def receive(self, agent: AgentId, message: Any) -> None:
        self.feed(on.AgentSent(self.world.at, agent, message))
        if isinstance(message, m.MemberMessage):
            self.settled.add(agent, self, self)  # type: ignore[arg-type] # it has the progress of both


class History:
    """Coordinators one after the other, until all trials have their ends."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.size = self.draw.choice([1, 1, 2])
        self.at = 0.0
        self.reports: list[tuple[int, int, int, int]] = []
        """Those in the store: trial, generation, rank and step."""
        self.trained: list[tuple[int, int, int, int]] = []
        """The steps that members have done."""
        self.workers: list[Worker] = []
        self.late: list[Callable[[], None]] = []
        self._names = 0
        self.office = Office(self, [])

    @property
    def limits(self) -> dict[str, Any]:
        roles = (Role.CHIEF, *[Role.WORKER] * (self.size - 1))
        return {"roles": roles, "max_retries": 50, "metric": "loss", "mode": "min"}

    def _name(self) -> AgentId:
        self._names += 1
        return AgentId(f"agent-{self._names}")

    # ---- agents

    def hire(self) -> None:
        """A fresh agent joins."""
        worker = Worker(self._name(), f"host-{self._names}", away=True)
        self.workers.append(worker)
        self.join(worker)

    def join(self, worker: Worker) -> None:
        if worker not in self.workers or not worker.away:
            return  # it is lost, or has joined since
        worker.name = self._name()
        worker.away = False
        offer = worker.offer()
        if offer is None:
            worker.outbox.attach(lambda message: self.office.receive(worker.name, message))
        self.office.feed(on.AgentJoined(self.office.world.at, worker.name, 0, worker.host, held=offer))
        self.office.receive(worker.name, m.Ready(RUN))

    def cut(self, worker: Worker) -> None:
        """The stream of an agent breaks: it holds its member, and joins again, perhaps before its end is known."""
        if worker.away:
            return
        former = worker.name
        worker.away = True
        worker.outbox.detach()
        worker.held = worker.member is not None
        office = self.office
        gone = on.AgentGone(office.world.at, former, "its stream broke")
        if self.draw.random() < 0.25:
            self.join(worker)
            office.feed(gone)
        else:
            office.feed(gone)
            if self.draw.random() < 0.25:
                self.join(worker)
            else:
                self.late.append(lambda: self.join(worker))

    def perform(self, office: Office, command: do.Command) -> None:
        """A command reaches an agent."""
        worker = next((worker for worker in self.workers if worker.name == getattr(command, "agent", None)), None)
        if worker is None or worker.away or office is not self.office:
            return
        if isinstance(command, do.PlaceMember):
            assert not worker.held, "an agent that holds a member gets another one"
            worker.outbox.clear()
            worker.member = command.member
            worker.place = None
            worker.step = 0 if command.checkpoint is None else command.checkpoint.step
            worker.entered = worker.ended = False
        elif isinstance(command, do.AdoptMember):
            assert worker.member == command.member, "an agent adopts what it does not hold"
            assert worker.held
            assert office.world.machine.last is not None
            assert office.world.machine.last.trials[command.member.trial].generation == command.member.generation
            worker.held = False
            worker.outbox.attach(lambda message: self.office.receive(worker.name, message))
        elif isinstance(command, do.DropAgent):
            self.workers.remove(worker)
        elif isinstance(command, do.Send):
            self._hear(worker, command.message)

    def _hear(self, worker: Worker, message: m.StateOutput) -> None:
        if message.member != worker.member:
            return
        if isinstance(message, m.Seating) and stage_of(message) == "formed":
            worker.place = message.places[message.member.rank]
        elif isinstance(message, m.StopMember):
            member = worker.member
            was_held = worker.held
            worker.held = False
            worker.member = None
            if was_held:
                worker.outbox.clear()
                worker.outbox.attach(lambda message: self.office.receive(worker.name, message))
            elif not worker.ended:
                failure = Failure(FailureKind.STOPPED, "stopped")
                worker.outbox.post(m.MemberEnded(member, Outcome(1.0, failure=failure)))

    def turn(self, worker: Worker) -> None:
        """The member does what comes next."""
        member = worker.member
        if member is None or worker.ended:
            return
        if not worker.entered:
            if self.size > 1 and worker.place is None:
                self.office.world.reserved.add(member)
                worker.outbox.post(m.MemberStands(member, m.Standing(port=4000 + member.rank)))
                if worker.place is None:
                    return
            worker.entered = True
            worker.outbox.post(m.MemberStarted(member, 1))
        elif worker.step < LENGTH:
            worker.step += 1
            self.trained.append((member.trial, member.generation, member.rank, worker.step))
            worker.outbox.post(m.MemberStepped(member, worker.step, 1.0))
            worker.outbox.post(m.MemberReported(member, (Report(worker.step, {"loss": 1.0 / worker.step}),)))
        else:
            worker.ended = True
            worker.outbox.post(m.MemberEnded(member, Outcome(1.0, metrics={"loss": float(worker.step)})))

    # ---- coordinators

    def kill(self) -> None:
        """The coordinator is lost, perhaps with some agents; members train on meanwhile, and another one takes over."""
        records = self.office.world.records[: self.office.durable]
        self.at = self.office.world.at
        if self.draw.random() < 0.5 and self.workers:
            self.workers.remove(self.draw.choice(self.workers))
        for worker in self.workers:
            worker.away = True
            worker.outbox.detach()
            worker.held = worker.member is not None
        for _ in range(self.draw.randrange(20)):
            for worker in self.workers:
                if worker.entered and self.draw.random() < 0.5:
                    self.turn(worker)
        self.late = []
        self.office = Office(self, records)
        for worker in self.draw.sample(self.workers, len(self.workers)):
            if self.draw.random() < 0.15:
                self.late.append(partial(self.join, worker))
            else:
                self.join(worker)

    def play(self) -> None:
        """Until the run is over."""
        kills = self.draw.randrange(1, 5)
        for _ in range(4000):
            if self.office.world.machine.sweep is None:
                self.office.store()
                break
            chance = self.draw.random()
            if kills and chance < 0.02:
                kills -= 1
                self.kill()
            elif chance < 0.06 and self.workers:
                self.cut(self.draw.choice(self.workers))
            elif chance < 0.075:
                self.office.world.tick(LATE_S)
                self.office._take()
                self.office.store()
                for join in self.late:
                    join()
                self.late = []
            elif chance < 0.2:
                self.office.store()
                for worker in self.workers:
                    if not worker.held:
                        worker.outbox.settle(self.office.settled.of(worker.name))
            elif len(self.workers) < 3 * self.size:
                self.hire()
            else:
                self.turn(self.draw.choice(self.workers))
        else:
            raise AssertionError(f"the run does not end: {self.office.world.machine.sweep.__dict__}")
        check(self)


def check(history: History) -> None:
    """Each trial has one end and each of its steps; members that continued have repeated none."""
    world = history.office.world
    ends = Counter(record.trial for record in world.records if isinstance(record, TrialConcluded))
    assert ends == dict.fromkeys(range(TRIALS), 1), f"ends of trials: {ends}"
    assert world.machine.last is not None
    for trial in world.machine.last.trials.values():
        assert trial.metrics == {"loss": float(LENGTH)}
        newest = [step for number, generation, rank, step in history.reports
                  if (number, generation, rank) == (trial.id, trial.generation, 0)]  # fmt: skip
        assert sorted(set(newest)) == list(range(1, LENGTH + 1)), f"reports of trial {trial.id}: {sorted(set(newest))}"
    repeated = [step for step, count in Counter(history.trained).items() if count > 1]
    assert not repeated, f"steps of one generation were done twice: {repeated[:3]}"
    check_journal(world)


def play_all(count: int) -> Counter[str]:
    """Play so many histories, the same ones each time; how often gangs were adopted, and trials restarted."""
    seen = Counter[str]()
    for seed in range(count):
        history = History(seed)
        history.play()
        world = history.office.world
        seen["adopted"] += sum(isinstance(record, GangAdopted) for record in world.records)
        assert world.machine.last is not None
        seen["restarted"] += sum(len(trial.restarts) for trial in world.machine.last.trials.values())
    return seen


def test_no_report_is_lost_and_no_trial_ends_twice() -> None:
    seen = play_all(HISTORIES)
    assert min(seen["adopted"], seen["restarted"]) > HISTORIES // 2, seen


# ---- mistakes


def of_any_generation(self: Adoptions, held: m.HeldMember) -> bool:
    return held.member.trial in self._sweep.awaited and held.member.rank not in self._offers.get(held.member.trial, ())


def of_any_trial(self: Adoptions, held: m.HeldMember) -> bool:
    """Also of one that was queued again."""
    trial = self._sweep.trials[held.member.trial]
    if trial.status == "queued":
        self._sweep.queue.remove(trial)
        trial.status = type(trial.status).RUNNING
        self._sweep.awaited[trial.id] = trial
    return not trial.status.final and trial.id not in self._sweep.gangs


def without_the_first(self: Outbox) -> list[Any]:
    return [message for _, message, _ in self._kept][1:]


def ends_first(self: Outbox) -> list[Any]:
    ends = list(self._lasting.values())
    return [*ends, *(message for _, message, _ in self._kept if message not in ends)]


def requeued(sweep: Sweep, driver: DriverStarted, before: Any = recovery._take_over) -> None:
    """A gang that may continue is queued, too."""
    before(sweep, driver)
    for trial in sweep.awaited.values():
        sweep.queue.append(trial)


MUTANTS = {
    "another attempt is adopted": patch.object(Adoptions, "_matches", of_any_generation),
    "a trial is adopted after it was queued again": patch.object(Adoptions, "_matches", of_any_trial),
    "a message that waits is lost": patch.object(Outbox, "_unsettled", without_the_first),
    "the end of a member comes before its reports": patch.object(Outbox, "_unsettled", ends_first),
    "a message counts as settled at once": patch.object(
        SettledMessages, "of", lambda self, agent: self._count.get(agent, 0)
    ),
    "nothing waits for another coordinator": patch.object(Outbox, "_unsettled", lambda _: []),
    "a gang that continues is queued, too": patch.object(recovery, "_take_over", requeued),
}


@pytest.mark.parametrize("mistake", sorted(MUTANTS))
def test_a_mistake_is_found(mistake: str) -> None:
    with MUTANTS[mistake], pytest.raises((AssertionError, ValueError, KeyError, RuntimeError)):
        play_all(HISTORIES)
