"""Calls on one session share its slots, and none waits for those of another."""

import pytest

from sparktrain.driver.slots.slot_holders import Holders
from sparktrain.errors import PoolError


def test_slots_that_others_hold_are_refused_at_once() -> None:
    holders, session = Holders(), object()
    holders.take("first", session, 2, 3)
    with pytest.raises(PoolError, match=r"^2 agents are wanted, .* hold 2 of the 3 slots .* max_concurrent_trials="):
        holders.take("second", session, 2, 3)
    holders.take("second", session, 1, 3)
    with pytest.raises(PoolError, match=r"^1 agent is wanted, .* hold 3 of the 3 slots"):
        holders.take("third", session, 1, 3)
    holders.free("first")
    holders.take("third", session, 2, 3)


def test_pools_that_leave_slots_do_not_stand_in_the_way() -> None:
    holders, session = Holders(), object()
    holders.take("first", session, 2, 2)
    holders.take("first", session, 2, 2)  # again, as after an idle time
    holders.take("elsewhere", object(), 2, 2)
    holders.take("unknown", session, 2, None)  # executors come as they are asked for
    holders.free("never opened")
    with pytest.raises(PoolError, match="hold 4 of the 4 slots"):  # each holds what it has taken, and once
        holders.take("last", session, 1, 4)


def test_a_call_alone_is_left_to_other_checks() -> None:
    Holders().take("first", object(), 5, 2)


def test_no_slot_is_in_two_hands() -> None:
    holders, session = Holders(), object()
    assert holders.take("first", session, 2, 6) == (0, 1)
    assert holders.take("second", session, 1, 6) == (2,)
    assert holders.take("elsewhere", object(), 1, 6) == (0,)
    holders.free("first")
    assert holders.take("second", session, 1, 6) == (2,), "its agents run there"
    assert holders.take("third", session, 3, 6) == (0, 1, 3)
    assert holders.take("second", session, 2, 6) == (2, 4)
