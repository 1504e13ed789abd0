"""A slow sampler is asked ahead: a slot that becomes free starts the next trial while the sampler still computes."""

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from sparktrain.base.ids import Generation, Member, TrialId
from sparktrain.driver.prepare.ready_run import request_of
from sparktrain.search.sampler import Observation, PastSuggestion, Sampler, Suggestion
from sparktrain.state.records import TrialsAdded
from tests.unit.driver import drivers
from tests.unit.driver.drivers import Driver, World, play, prepared, whole

TRIALS = 6
PATIENCE_S = 10.0


class Slow(Sampler):
    """Computes each case after the first two until the trial before it has started."""

    learns = True
    total = TRIALS

    def __init__(self, started: "dict[int, threading.Event]") -> None:
        self._started = started
        self._made = 0
        self.waited_in_vain = False

    def suggest(self, count: int) -> Suggestion:
        count = min(count, TRIALS - self._made)
        if self._made:
            self.waited_in_vain |= not self._started[self._made - 1].wait(PATIENCE_S)
        cases = tuple({"x": number} for number in range(self._made, self._made + count))
        self._made += count
        return Suggestion(cases, exhausted=self._made == TRIALS)

    def observe(self, observation: Observation) -> None:
        """Learns nothing here."""

    def restore(self, history: Sequence[PastSuggestion | Observation]) -> None:
        """Nothing came before."""


class WatchedWorld(World):
    """Lets the sampler know when a trial starts."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = {number: threading.Event() for number in range(TRIALS)}

    def start(self, member: Member) -> None:
        super().start(member)
        self.begun[member.trial].set()


def test_a_freed_slot_starts_the_next_trial_while_the_sampler_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler ends each call only once the trial before has started: without one ahead, that would never be."""
    world, run = WatchedWorld(), prepared(TRIALS, learning=True)
    sampler = Slow(world.begun)
    monkeypatch.setattr(type(run.definition), "new_sampler", lambda self, slots=1: sampler)
    play(Driver(world, run, whole, agents=1).run())
    assert not sampler.waited_in_vain
    assert world.started == [(TrialId(number), Generation(1)) for number in range(TRIALS)]
    asked = [each.asked for each in world.records() if isinstance(each, TrialsAdded)]
    assert asked[0] == 2, "one for the free slot, and one ahead"


def test_the_test_notices_a_sampler_that_is_asked_late(monkeypatch: pytest.MonkeyPatch) -> None:
    world, run = WatchedWorld(), prepared(TRIALS, learning=True)
    sampler = Slow(world.begun)
    monkeypatch.setattr(type(run.definition), "new_sampler", lambda self, slots=1: sampler)
    monkeypatch.setattr(drivers, "request_of", lambda *given: replace(request_of(*given), lookahead=0))
    play(Driver(world, run, whole, agents=1).run())
    asked = [each.asked for each in world.records() if isinstance(each, TrialsAdded)]
    assert asked == [1] * TRIALS, "each case is asked for when a slot is free, which waits for it"
