"""Wherever a driver dies, the next one resumes: each trial has one result, and a finished trial is not repeated."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktrain.base.ids import Generation, TrialId
from sparktrain.driver.journal_writer import JournalWriter
from sparktrain.driver.prepare import ready_run
from sparktrain.driver.prepare.checked_call import CheckedCall
from sparktrain.driver.run_request import RunOutcome
from sparktrain.errors import DeposedError
from sparktrain.rundir.journal.writer import Journal
from sparktrain.runs.history import past
from sparktrain.search.sampler import PastSuggestion
from sparktrain.state import recovery
from sparktrain.state.ending import Ending
from sparktrain.state.records import AnyRecord, DriverStarted, GangFormed, TrialConcluded, TrialsAdded
from sparktrain.state.sweep import Sweep
from sparktrain.state.trial import Trial, TrialStatus
from tests.unit.driver.drivers import Climber, Driver, World, outcome, play, prepared, whole
from tests.unit.store.gated import Crash, FailAt, fault

FIFTY_TRIALS = pytest.mark.all(
    case="a driver of 50 trials dies after each operation of its store", covered_by="a driver of seven trials"
)

ALL_HISTORIES = pytest.mark.all(
    case="a hundred histories of drivers", covered_by="the first forty of them; each mistake is looked for in a hundred"
)

TRIALS, FEW, FEWEST = 50, 12, 7
HISTORIES, SOME_HISTORIES = 100, 40
AGAIN = 2
"""Operations of the store between a Ctrl-C and the second one."""


class Sleeper:
    """The gate of a driver that is replaced at operation `index`, and continues beside the next."""

    def __init__(self, index: int) -> None:
        self.replaced = asyncio.Event()
        self._left = index

    def __call__(self, name: str, effect: Callable[[], Any]) -> Any:
        self._left -= 1
        if self._left < 0:
            self.replaced.set()
        return effect()


class Interrupt:
    """The gate of a driver that gets Ctrl-C at operation `index`, and a second one, which ends it, `again` later."""

    def __init__(self, index: int, again: int | None) -> None:
        self.pressed = asyncio.Event()
        self._left = index
        self._last = None if again is None else -again

    def __call__(self, name: str, effect: Callable[[], Any]) -> Any:
        self._left -= 1
        if self._left < 0:
            self.pressed.set()
        if self._last is not None and self._left < self._last:
            raise Crash
        return effect()


def audit(world: World, ran: RunOutcome, trials: int) -> None:
    """Each trial has one result, that of its parameters, and no generation started twice."""
    assert ran.end.ending == Ending.COMPLETE
    assert [trial.id for trial in ran.trials] == list(range(trials))
    for trial in ran.trials:
        expected = outcome(trial.params["x"])
        assert trial.metrics == (expected.metrics or {})
        assert (trial.error is None) == (expected.failure is None)
    concluded = [each for each in world.records() if isinstance(each, TrialConcluded)]
    ends = Counter(each.trial for each in concluded if each.status.observed)
    assert ends == {TrialId(number): 1 for number in range(trials)}
    assert max(Counter(trial.id for trial in world.ended if trial.status.observed).values(), default=0) <= 1
    for number in range(trials):
        generations = [generation for trial, generation in world.started if trial == number]
        assert generations == sorted(set(generations))
        assert Generation(1) <= min(generations)


def check_suggestions(records: list[AnyRecord]) -> None:
    """Each driver's sampler has suggested what one that was restored from the records before it suggests."""
    suggestions = [(index, each) for index, each in enumerate(past(records, "y")) if isinstance(each, PastSuggestion)]
    added = [record for record in records if isinstance(record, TrialsAdded)]
    for (index, made), record in zip(suggestions, added, strict=True):
        sampler = Climber(FEW)
        sampler.restore(past(records, "y")[:index])
        assert sampler.suggest(record.asked).cases == made.cases


async def run_or_die(driver: Driver) -> RunOutcome | None:
    """Run a driver; return None when it died."""
    try:
        return await driver.run()
    except Crash:
        return None


@pytest.mark.timeout(300)
@pytest.mark.parametrize("trials", [FEWEST, pytest.param(TRIALS, marks=FIFTY_TRIALS)])
def test_a_driver_may_die_after_each_operation_of_its_store(trials: int) -> None:
    run, points = prepared(trials), 0
    while True:
        world, gate = World(), FailAt(points, "after", Crash())
        ran = play(run_or_die(Driver(world, run, gate))) or play(Driver(world, run, whole).run())
        audit(world, ran, trials)
        if not gate.broke:
            break
        points += 1
    assert points > trials


@pytest.mark.parametrize("again", [None, AGAIN], ids=["once", "twice"])
def test_a_driver_may_be_interrupted_at_each_operation_of_its_store(again: int | None) -> None:
    run, endings = prepared(FEWEST), Counter[Ending | None]()
    while not endings[Ending.COMPLETE]:
        world, gate = World(), Interrupt(endings.total(), again)
        ended = play(run_or_die(Driver(world, run, gate, interrupted=gate.pressed)))
        endings[ended.end.ending if ended else None] += 1
        audit(world, play(Driver(world, run, whole).run()), FEWEST)
    assert endings[Ending.STOPPED if again is None else None] > FEWEST


FATES = ("dies before", "dies after", "fails before", "fails after", "sleeps", "interrupted", "interrupted twice")
LIVES = st.tuples(st.sampled_from(FATES), st.integers(0, 70))


async def history(world: World, run: CheckedCall, lives: list[tuple[str, int]], agents: int) -> RunOutcome:
    """Run drivers one after the other, some beside the next; return the outcome of the last one."""
    asleep: list[asyncio.Task[RunOutcome]] = []
    try:
        for life, at in lives:
            if life == "sleeps":
                gate = Sleeper(at)
                asleep.append(asyncio.create_task(Driver(world, run, gate, agents).run()))
                waking = asyncio.create_task(gate.replaced.wait())
                await asyncio.wait({waking, asleep[-1]}, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
            elif life.startswith("interrupted"):
                pressed = Interrupt(at, AGAIN if life.endswith("twice") else None)
                with suppress(Crash):
                    ended = await Driver(world, run, pressed, agents, interrupted=pressed.pressed).run()
                    assert ended.end.ending in (Ending.STOPPED, Ending.COMPLETE), ended.end
            else:
                error = Crash() if life.startswith("dies") else fault()
                with suppress(type(error)):
                    await Driver(world, run, FailAt(at, life.split()[1], error), agents).run()
        return await Driver(world, run, whole, agents).run()
    finally:
        for ended in await asyncio.gather(*asleep, return_exceptions=True):
            assert isinstance(ended, RunOutcome | DeposedError), ended


def _each_history(
    count: "Counter[str]", lives: list[tuple[str, int]], learning: bool, agents: int, busy: list[int]
) -> None:
    count.update(["histories", *(life for life, _ in lives)])
    world, run = World(), prepared(FEW, learning)
    audit(world, play(history(world, run, lives, agents), busy), FEW)
    if learning:
        check_suggestions(world.records())


def histories(number: int) -> "Counter[str]":
    """Play and audit so many histories, the same ones each time; return how often each fate of a driver occurred."""
    count = Counter[str]()
    drawn = given(
        lives=st.lists(LIVES, max_size=5),
        learning=st.booleans(),
        agents=st.integers(1, 3),
        busy=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    )(_each_history)
    fixed: dict[str, Any] = {"derandomize": True, "database": None, "phases": (Phase.generate,)}
    settings(max_examples=number, deadline=None, **fixed)(drawn)(count)
    return count


@pytest.mark.parametrize("number", [SOME_HISTORIES, pytest.param(HISTORIES, marks=ALL_HISTORIES)])
def test_no_history_of_drivers_loses_a_result_or_has_two(number: int) -> None:
    played = histories(number)
    assert played.pop("histories") == number
    assert set(played) == set(FATES)


# ---- mistakes


def _take_over_all(sweep: Sweep, began: DriverStarted) -> None:
    """A mistake: every trial is queued, finished or not."""
    for trial in sweep.trials.values():
        trial.status = TrialStatus.QUEUED
    sweep.take_over(began, sweep.trials.values())


def _fold_no_generation(sweep: Sweep, trial: Trial, record: AnyRecord) -> None:
    """A mistake: generations count from 1 in each driver."""
    _fold_trial(sweep, trial, replace(record, generation=0) if isinstance(record, GangFormed) else record)


_fold_trial = recovery._fold_trial
MUTANTS = {
    "nothing waits for the journal": (
        patch.object(JournalWriter, "_must_wait", lambda *_: False),
        "before its gang|is reported",
    ),
    "no driver is deposed": (patch.object(Journal, "_check_rivals", lambda _: None), "is reported|started|metrics"),
    "finished trials are queued": (patch.object(recovery, "_take_over", _take_over_all), "has a result"),
    "generations restart from 1": (patch.object(recovery, "_fold_trial", _fold_no_generation), "is started twice"),
    "samplers forget their trials": (patch.object(ready_run, "past", lambda *_: []), None),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_histories_find_the_mistake(mutant: str) -> None:
    mistake, words = MUTANTS[mutant]
    with mistake, pytest.raises(AssertionError, match=words):
        histories(HISTORIES)
