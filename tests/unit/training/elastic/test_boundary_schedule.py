"""When members take snapshots in memory: within their budget, and on all members after the same step."""

from itertools import pairwise

import pytest

from sparktrain.errors import SpecError
from sparktrain.training.elastic.boundary_schedule import BUDGET, SHORTEST_S, BoundarySchedule, snapshot_interval


def taken(schedule: BoundarySchedule, steps: int, pace_s: float, cost_s: float) -> list[int]:
    """The steps after which a training with steps of `pace_s` takes snapshots."""
    found, last = [], 0
    schedule.start(0)
    for step in range(1, steps + 1):
        if step == schedule.next and schedule.agree(step, (step - last) * pace_s, pace_s, cost_s if found else 0.0):
            found.append(step)
            last = step
    return found


@pytest.mark.parametrize("cost_s", [0.001, 0.02, 0.3])
@pytest.mark.parametrize("pace_s", [0.001, 0.1, 1.5])
def test_snapshots_take_the_budget_and_no_more(cost_s: float, pace_s: float) -> None:
    steps = int(200 / pace_s)
    found = taken(BoundarySchedule(), steps, pace_s, cost_s)
    wanted_s = max(SHORTEST_S, cost_s / BUDGET, pace_s)
    gaps = [(later - step) * pace_s for step, later in pairwise(found)]
    assert len(found) >= 0.5 * steps * pace_s / (wanted_s + pace_s)
    assert min(gaps) >= min(wanted_s, cost_s / BUDGET) - 1e-9
    assert max(gaps[1:]) <= wanted_s + 2 * pace_s


def test_the_first_steps_of_a_process_do_not_delay_the_first_snapshot() -> None:
    assert taken(BoundarySchedule(), 2000, 0.001, 0.001)[0] <= 2 * SHORTEST_S / 0.001


def test_a_fixed_time_takes_the_place_of_the_budget() -> None:
    found = taken(BoundarySchedule(5.0), 1000, 0.1, 3.0)
    assert {later - step for step, later in pairwise(found[1:])} == {50}


def test_a_postponed_snapshot_is_due_after_the_next_step() -> None:
    schedule = BoundarySchedule()
    schedule.start(10)
    schedule.postpone(11)
    assert schedule.next == 12


@pytest.mark.parametrize("members", [1, 2, 5])
def test_the_members_of_a_host_take_turns(members: int) -> None:
    """In each row of as many snapshots as members, each takes one; in each snapshot one member of the host does."""
    schedules = [BoundarySchedule() for _ in range(members)]
    taken = [[each.turn(place, members) for place, each in enumerate(schedules)] for _ in range(3 * members)]
    assert all(sum(each) == 1 for each in taken)
    for first in range(2 * members):
        assert [sum(each) for each in zip(*taken[first : first + members], strict=True)] == [1] * members


@pytest.mark.parametrize("wrong", [5, True, 0.5, "", "often", "-1s", []])
def test_other_values_of_memory_checkpoint_are_refused(wrong: object) -> None:
    with pytest.raises(SpecError, match="memory_checkpoint"):
        snapshot_interval(wrong)


def test_the_values_of_memory_checkpoint() -> None:
    assert snapshot_interval("auto") is None
    assert snapshot_interval("90s") == 90.0
