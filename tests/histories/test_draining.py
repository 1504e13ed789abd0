"""Trials and gangs on agents that are drained at any moment, among losses: nothing starts there, no retry is used."""

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from sparktrain.ids import AgentId
from sparktrain.state import commands as do
from sparktrain.state import restart, sweep
from sparktrain.state.gangs.gang import Gang
from sparktrain.state.losses.draining import Draining
from sparktrain.state.losses.drains import Drains
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import FailureKind, Restart
from sparktrain.state.records import DrainCompleted
from sparktrain.state.trial import Trial
from tests.histories.test_gangs import act, check_checkpoints, check_journal, check_members, check_memory, finish
from tests.unit.state.world import LEASE_S, World

HISTORIES = 150
EVENTS = 40
WHAT = (
    *("start", "start", "hold", "pause", "pause", "pause", "write", "drain", "join", "join", "tick", "step"),
    *("lose", "crash", "succeed", "explain", "again"),
)


class WrongHistoryError(AssertionError):
    """A drained agent got a member, or its drain was complete too early, or cost a retry or a step."""


class History:
    """A run that drains and loses agents."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(Machine(LEASE_S, self.random.choice([0.0, 20.0])), cases=2)
        self.names: list[AgentId] = []
        self.moved = 0
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
        return {each.id for each in self.world.machine.agents.all() if each.host in last.drains.hosts}

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
                if gang.stop.pause is not None and gang.stop.pause.in_store:
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
            hosts = {agent.host for agent in self.world.machine.agents.all() if agent.id in busy}
            open_hosts = {each.host for request, each in last.drains.open.items() if request not in completed}
            if not hosts <= open_hosts:
                raise WrongHistoryError(f"the drain of {hosts - open_hosts} is complete, and {busy} has a member")


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
    def counted(trial: Trial, gang: Gang) -> Restart:
        return replace(restart.continuation_of(trial, gang), paused=False)

    monkeypatch.setattr(sweep, "continuation_of", counted)


def goes_back_to_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(trial: Trial, gang: Gang) -> Restart:
        gang.checkpoints.kept_step = None
        return restart.continuation_of(trial, gang)

    monkeypatch.setattr(sweep, "continuation_of", stale)


@pytest.mark.parametrize("mutant", [gets_members, completes_at_once, uses_a_retry, goes_back_to_the_store])
def test_the_histories_find_a_wrong_drain(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises(WrongHistoryError):
        play_all()
