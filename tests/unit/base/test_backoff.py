"""Pauses between attempts, and the time that the attempts of one call share."""

from sparktrain.base.backoff import Backoff, RetryBudget
from tests.unit.clocks import InstantClock


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_jitter_changes_a_pause_and_not_those_after_it() -> None:
    backoff = Backoff(1.0, 64.0, jitter=(0.5, 1.5))
    pauses = [backoff.next_s() for _ in range(7)]
    assert all(0.5 <= pause / 2**number <= 1.5 for number, pause in enumerate(pauses))
    assert len({pause / 2**number for number, pause in enumerate(pauses)}) > 1
    assert backoff.pause_s == 64.0


def test_no_attempt_starts_when_the_budget_is_spent() -> None:
    clock = InstantClock()
    budget = RetryBudget(10.0, Backoff(1.0, 4.0), clock)
    clock.at += 1.0
    attempts = 1
    while budget.wait():
        attempts += 1
    assert clock.pauses == [1.0, 2.0, 4.0]
    assert (attempts, budget.spent_s()) == (4, 8.0)


def test_a_call_without_a_budget_has_one_attempt() -> None:
    clock = InstantClock()
    assert not RetryBudget(0.0, Backoff(0.0, 1.0), clock).wait()
    assert clock.pauses == []
