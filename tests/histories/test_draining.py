"""Trials and gangs on agents that are drained at any moment, among losses: nothing starts there, no retry is used."""

import random
from collections.abc import Callable

import pytest

from sparktrain.base.ids import AgentId, Member
from sparktrain.state import commands as do
from sparktrain.state import restart, sweep
from sparktrain.state.agents import AgentState
from sparktrain.state.gangs.gang import Gang
from sparktrain.state.losses.draining import Draining
from sparktrain.state.losses.drains import Drains
from sparktrain.state.losses.lost_agents import LostAgents
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import FailureKind, Loss, Restart, RestartHow
from sparktrain.state.records import DrainCompleted, DrainDecided
from sparktrain.state.seats.seat_change import StateSource
from sparktrain.state.trial import Trial
from tests.histories.test_gangs import act, check_checkpoints, check_journal, check_members, check_memory, finish
from tests.unit.state.world import LEASE_S, World

HISTORIES = 150
EVENTS = 40
WHAT = (
    *("start", "start", "hold", "pause", "pause", "pause", "write", "drain", "join", "join", "tick", "step"),
    *("lose", "crash", "succeed", "explain", "again", "announce"),
)


class WrongHistoryError(AssertionError):
    """A drained agent got a member, or its drain was complete too early, or cost a retry or a step."""


class History:
    """A run that drains and loses agents."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(Machine(LEASE_S, self.random.choice([0.0, 20.0])), cases=2)
        self.names: list[AgentId] = []
        self.announced: set[AgentId] = set()
        size = self.random.choice([1, 1, 2, 3])
        least = self.random.choice([None, 1])
        self.world.begin(size=size, max_retries=20, recovers=True, min_workers=least)
        for number in range(size + self.random.randint(0, 2)):
            self.names.append(self.world.join(f"a{number}", f"host-{number % 3}", number))
        self.world.suggest()

    def play(self) -> int:
        """Returns how many restarts left a drained agent."""
        for number in range(EVENTS):
            what = self.random.choice(WHAT)
            commands_before = len(self.world.commands)
            drained = self.drained()
            if what == "drain":
                host = f"host-{self.random.randint(0, 2)}"
                self.world.drain(host, request=str(number))
            elif what == "announce":
                self.announce()
            elif what == "lose":
                self.lose()
            elif what == "pause":
                self.pause()
            else:
                act(self.world, what, self.random.randint(0, 7), self.names)
            self.world.suggest()
            check_members(self.world)
            self.check(drained, self.world.commands[commands_before:])
        check_memory(self.world)
        check_checkpoints(self.world)
        check_journal(self.world)
        finish(self.world)
        last = self.world.machine.last
        assert last is not None
        return sum(each.drained for trial in last.trials.values() for each in trial.restarts)

    def drained(self) -> set[AgentId]:
        """By their hosts, and not by what the product makes of them."""
        last = self.world.machine.last
        assert last is not None
        agents = self.world.machine.agents.all()
        return {each.id for each in agents if each.host in last.drains.hosts or each.id in self.announced}

    def announce(self) -> None:
        """An agent has notice."""
        if agents := self.world.machine.agents.all():
            agent = self.random.choice(agents).id
            self.world.announce(agent)
            self.announced.add(agent)

    def lose(self) -> None:
        """An agent is lost, and the cluster may report why. No retry is used if it was announced."""
        agents = self.world.machine.agents.all()
        if not agents:
            return
        agent = self.random.choice(agents)
        last = self.world.machine.last
        assert last is not None
        trial = last.trials.get(agent.member.trial) if agent.member is not None else None
        gang = last.gangs.get(trial.id) if trial is not None else None
        # Another failure may be the cause of the gang's end.
        blamed = gang is None or gang.fault.first is None
        spent = trial.spent()[0] if trial is not None else 0
        self.world.lose(agent.id)
        if self.random.random() < 0.5:
            self.world.explain(agent.id, self.random.choice([Loss.OTHER, Loss.PREEMPTED]))
        for other in [other for other, _ in gang.live()] if gang is not None else ():
            self.world.fail(other, FailureKind.STOPPED)
        if trial is not None and blamed and agent.id in self.announced and trial.spent()[0] > spent:
            raise WrongHistoryError(f"the loss of {agent.id} was announced, and used a retry: {trial.restarts[-1]}")

    def pause(self) -> None:
        """All members of a gang have paused after one step, and hold it; then they end if they must."""
        last = self.world.machine.last
        assert last is not None
        for gang in list(last.gangs.values()):
            self.world.written += 1
            step = self.world.written
            had_to_end = gang.stop.continues
            for agent, _ in gang.live() if not had_to_end else ():
                self.world.step(agent, step)
                if gang.stop.pause is not None and gang.stop.pause.change.source is StateSource.STORE:
                    self.world.write(agent, step)
                else:
                    self.world.hold(agent, step, paused=True)
            ends = [agent for agent, _ in gang.live() if gang.stop.continues]
            restarts = len(last.trials[gang.trial].restarts)
            spent = last.trials[gang.trial].spent()
            for agent in ends:
                self.world.fail(agent, FailureKind.STOPPED)
            moved = last.trials[gang.trial].restarts[restarts:]
            if not had_to_end and [
                each for each in moved if each.drained and (each.resumed_from_step, each.steps_lost) != (step, 0)
            ]:
                raise WrongHistoryError(f"all members paused after step {step}, and the next gang is at {moved}")
            if any(each.drained for each in moved) and last.trials[gang.trial].spent() > spent:
                raise WrongHistoryError(f"a retry was used by {moved}")

    def check(self, drained: set[AgentId], commands: list[do.Command]) -> None:
        placed = {each.agent for each in commands if isinstance(each, do.PlaceMember)}
        if placed & drained:
            raise WrongHistoryError(f"{placed & drained} got a member, and is drained")
        completed = {each.request for each in self.world.records if isinstance(each, DrainCompleted)}
        last = self.world.machine.last
        assert last is not None
        if busy := [each for each in self.drained() if each in self.world.running]:
            open_drains = [each for request, each in last.drains.open.items() if request not in completed]
            for agent in map(self.world.machine.agents.get, busy):
                if agent is not None and not any(concerns(each, agent) for each in open_drains):
                    raise WrongHistoryError(f"the drain of {agent} is complete, and it has a member")


def concerns(decided: DrainDecided, agent: AgentState) -> bool:
    return decided.host == agent.host and decided.agent in (None, agent.slot)


def play_all() -> int:
    return sum(History(seed).play() for seed in range(HISTORIES))


def test_drained_agents_are_left_without_a_lost_step_or_a_used_retry() -> None:
    assert play_all() > HISTORIES / 5


def gets_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Drains, "covers", lambda self, agent: agent.id in self.agents)


def completes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = Draining.advance

    def early(self: Draining, at: float) -> list[do.Command]:
        commands = advance(self, at)
        for request in list(self._sweep.drains.open):
            self._sweep.drains.complete(request)
            self._sweep.note([DrainCompleted(request=request)])
        return commands

    monkeypatch.setattr(Draining, "advance", early)


def uses_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparktrain.state.trial.PLANNED", frozenset({RestartHow.PAUSED, RestartHow.JOINED}))


def goes_back_to_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(trial: Trial, gang: Gang) -> Restart:
        gang.checkpoints.kept_step = None
        return restart.continuation_of(trial, gang)

    monkeypatch.setattr(sweep, "continuation_of", stale)


def counts_what_was_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    lose = LostAgents.lose

    def plain(self: LostAgents, agent: AgentState, member: Member) -> None:
        lose(self, agent, member)
        self.announced.pop(agent.id, None)

    monkeypatch.setattr(LostAgents, "lose", plain)


def believes_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    explain = LostAgents.explain

    def plain(self: LostAgents, agent: AgentId, loss: Loss, reason: str) -> Gang | None:
        self.announced.pop(agent, None)
        return explain(self, agent, loss, reason)

    monkeypatch.setattr(LostAgents, "explain", plain)


def forgets_the_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Draining, "announce", lambda self, agent: None)


MUTANTS = [gets_members, completes_at_once, uses_a_retry, goes_back_to_the_store]
MUTANTS += [counts_what_was_announced, believes_the_cluster, forgets_the_notice]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_histories_find_a_wrong_drain(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises(WrongHistoryError):
        play_all()
