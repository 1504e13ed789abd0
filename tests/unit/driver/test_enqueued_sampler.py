"""Trials that users add come first, count as trials of the sweep, and survive a restart of the driver."""

import logging
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from sparktrain.base.ids import TrialId
from sparktrain.config.distribution import uniform
from sparktrain.driver.continuation.enqueued_sampler import EnqueuedSampler
from sparktrain.runs.additions.enqueued import EnqueuedTrial
from sparktrain.search.grid import SpaceSampler
from sparktrain.search.sampled_space import space as sampled
from sparktrain.search.sampler import Observation, ObservedStatus, PastSuggestion, Sampler, Suggestion
from sparktrain.search.space import grid

GRID = grid({"lr": [1, 2, 3, 4]})
RANGE = sampled({"lr": uniform(0, 10)})


class Requests:
    """The requests of users, as a store has them."""

    def __init__(self) -> None:
        self.all: list[EnqueuedTrial] = []
        self.fails = False

    def add(self, **params: Any) -> None:
        self.all.append(EnqueuedTrial(id=str(len(self.all)), params=params, user="ann"))

    def __call__(self, known_ids: Collection[str]) -> Sequence[EnqueuedTrial]:
        if self.fails:
            raise OSError("the store is away")
        return [each for each in self.all if each.id not in known_ids]


class Counting(Sampler):
    """Proposes 0.0, 0.1, 0.2, ..., and keeps each result."""

    learns = True

    def __init__(self, total: int | None) -> None:
        self.total = total
        self.given = 0
        self.seen: list[tuple[int, float]] = []

    def suggest(self, count: int) -> Suggestion:
        left = count if self.total is None else min(count, self.total - self.given)
        cases = tuple({"lr": (self.given + each) / 10} for each in range(left))
        self.given += left
        return Suggestion(cases, self.given == self.total, {"given": self.given})

    def observe(self, observation: Observation) -> None:
        self.seen.append((observation.trial, observation.params["lr"]))

    def restore(self, history: Sequence[PastSuggestion | Observation]) -> None:
        for each in history:
            if isinstance(each, Observation):
                self.observe(each)
            else:
                assert each.first == self.given
                self.given += len(each.cases)


def ended(number: int, lr: float) -> Observation:
    return Observation(TrialId(number), {"lr": lr}, ObservedStatus.SUCCEEDED, {"loss": lr})


class Driver:
    """Asks a sampler one case at a time, and keeps what a journal would."""

    def __init__(self, sampler: Sampler, past: Sequence[PastSuggestion | Observation] = ()) -> None:
        self.sampler = sampler
        self.journal = list(past)
        self.values = [case["lr"] for each in past if isinstance(each, PastSuggestion) for case in each.cases]
        sampler.restore(past)
        self.exhausted = False

    def ask(self, count: int = 1) -> list[float]:
        found = self.sampler.suggest(count)
        self.journal.append(PastSuggestion(TrialId(len(self.values)), found.cases, found.exhausted, dict(found.memo)))
        self.values += [case["lr"] for case in found.cases]
        self.exhausted = found.exhausted
        return [case["lr"] for case in found.cases]

    def end(self, number: int) -> None:
        self.journal.append(ended(number, self.values[number]))
        self.sampler.observe(ended(number, self.values[number]))


def test_an_added_trial_is_next_and_counts_as_one_of_the_sweep() -> None:
    requests, inner = Requests(), Counting(4)
    driver = Driver(EnqueuedSampler(inner, RANGE, requests, listed=False))
    assert driver.ask() == [0.0]
    requests.add(lr=5)
    requests.add(lr=6)
    assert driver.ask(3) == [5.0, 6.0]
    assert driver.ask(3) == [0.1]
    assert driver.exhausted
    for number in range(4):
        driver.end(number)
    assert inner.seen == [(0, 0.0), (-2, 5.0), (-3, 6.0), (1, 0.1)]
    requests.add(lr=7)
    assert driver.ask() == []


def test_a_grid_runs_each_case_once_an_added_one_before_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    requests = Requests()
    driver = Driver(EnqueuedSampler(SpaceSampler(GRID), GRID, requests, listed=True))
    assert driver.ask() == [1]
    requests.add(lr=3)
    requests.add(lr=1)
    requests.add(lr=3.0)
    requests.add(lr=9)
    with caplog.at_level(logging.WARNING, "sparktrain"):
        assert driver.ask(9) == [3]
    assert [line.split("left out: ")[1][:30] for line in caplog.messages] == [
        "a list has each combination on", "a list has each combination on", "lr = 9 is not in choice([1, 2,",
    ]  # fmt: skip
    assert (driver.ask(9), driver.ask(9), driver.exhausted) == ([2], [4], True)


@pytest.mark.parametrize("cut", range(1, 6))
def test_another_driver_continues_as_if_it_had_never_changed(cut: int) -> None:
    for listed, space in ((True, GRID), (False, RANGE)):
        whole, halves = Requests(), Requests()
        drivers = []
        for requests, restart in ((whole, False), (halves, True)):
            inner = (lambda: SpaceSampler(GRID)) if listed else (lambda: Counting(6))
            driver = Driver(EnqueuedSampler(inner(), space, requests, listed))
            for step in range(8):
                if step in (1, 3):
                    requests.add(lr=step)
                if step == cut and restart:
                    driver = Driver(EnqueuedSampler(inner(), space, requests, listed), driver.journal)
                if asked := driver.ask():
                    driver.end(len(driver.values) - len(asked))
            drivers.append(driver)
        assert drivers[0].values == drivers[1].values
        assert len(drivers[0].values) == (4 if listed else 6)
        assert sorted(drivers[0].values) == [1, 2, 3, 4] if listed else drivers[0].values[1] == 1.0


def test_a_store_that_fails_delays_added_trials_alone() -> None:
    requests = Requests()
    driver = Driver(EnqueuedSampler(Counting(4), RANGE, requests, listed=False))
    requests.add(lr=5)
    requests.fails = True
    assert driver.ask() == [0.0]
    requests.fails = False
    assert driver.ask() == [5.0]
