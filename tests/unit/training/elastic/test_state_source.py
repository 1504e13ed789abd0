"""Which member sends its state to the process of a lost one, by how far each has come."""

import pytest

from sparktrain.errors import RingError
from sparktrain.training.elastic.state_source import RingStanding, SourceDirection, source_of

NEW = RingStanding(is_new=True)


def loop(steps: int, *, is_ahead: bool = False, in_step: bool = False, results: int = 0) -> RingStanding:
    least = SourceDirection.LEAST_ADVANCED
    return RingStanding(steps=steps, is_ahead=is_ahead, in_step=in_step, results=results, direction=least)


def test_a_fit_continues_from_the_most_advanced_member() -> None:
    assert source_of([RingStanding(steps=4), NEW, RingStanding(steps=5), RingStanding(steps=5)]) == 2


def test_a_loop_continues_from_a_member_that_has_not_applied_the_step() -> None:
    assert source_of([loop(4, is_ahead=True), NEW, loop(4, in_step=True)]) == 2
    assert source_of([loop(5), loop(4, in_step=True), NEW]) == 1


def test_of_equal_members_of_a_loop_the_one_with_most_results_sends_and_else_the_first() -> None:
    assert source_of([NEW, loop(4, results=1), loop(4, results=2)]) == 2
    assert source_of([NEW, loop(4, in_step=True), loop(4, in_step=True)]) == 1


def test_a_ring_in_which_no_member_has_the_state_of_the_others_does_not_heal() -> None:
    with pytest.raises(RingError, match="all members had changed their weights since they"):
        source_of([loop(4, is_ahead=True), NEW])
    with pytest.raises(RingError, match="some members train in fit"):
        source_of([loop(4), RingStanding(steps=4), NEW])
    with pytest.raises(RingError, match="all of them are new"):
        source_of([NEW, NEW])
