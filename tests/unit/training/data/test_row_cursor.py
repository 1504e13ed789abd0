"""Members of a gang that gets another size divide exactly what no step has trained."""

import pytest

from sparktrain.training.data.assignment import BatchShare, Uneven
from sparktrain.training.data.position import PassPlace, Position
from sparktrain.training.data.row_cursor import BatchCursor, RowCursor
from sparktrain.training.data.row_order import RowShare

BATCHES = 25


def of(size: int, uneven: Uneven = Uneven.DROP) -> BatchShare:
    return BatchShare(0, size, uneven)


def started(size: int, batches: int = BATCHES, uneven: Uneven = Uneven.DROP) -> tuple[Position, BatchCursor]:
    """The first epoch of a fit in a gang of `size`, which has started its pass."""
    position = Position()
    cursor = BatchCursor(position, of(size, uneven), batches)
    position.start_fit(cursor.steps)
    position.start_epoch(0)
    assert cursor.next_pass() == PassPlace(number=0, replayed=0, skipped=0)
    return position, cursor


@pytest.mark.parametrize(("steps", "left"), [(0, 12), (1, 11), (5, 5), (7, 2)])
def test_fewer_members_divide_what_is_left_of_the_epoch(steps: int, left: int) -> None:
    position, cursor = started(3)
    for step in range(steps):
        position.finish_step(step)
    assert cursor.divide(of(2), steps, trains=False) == left
    assert cursor.rows() == [0, 3 * steps], "before the first batch of the rest is read, too"
    place = cursor.next_pass()
    assert (place.number, place.replayed) == (0, 0)
    assert place.taken_rows + 2 * place.skipped == 3 * steps
    for step in range(steps, steps + left):
        assert not position.at_epoch_end
        position.finish_step(step)
    assert position.at_epoch_end
    assert (position.batch, position.per_epoch) == (12, 12), "its steps are those of an epoch of two members"
    position.start_epoch(1)
    assert cursor.next_pass() == PassPlace(number=1, replayed=0, skipped=0)


def test_they_divide_it_once_more() -> None:
    position, cursor = started(4)
    position.finish_step(0)
    assert cursor.divide(of(3), 1, trains=False) == 7
    cursor.next_pass()
    position.finish_step(1)
    assert cursor.rows() == [0, 7]
    assert cursor.divide(of(1), 2, trains=False) == 18
    assert cursor.next_pass().skipped == 7


def test_a_step_that_others_have_applied_is_over() -> None:
    position, cursor = started(3)
    position.finish_step(0)
    assert cursor.divide(of(2), 2, trains=False) == 9
    position.finish_step(1)
    assert cursor.next_pass().skipped == 3
    assert (position.batch, cursor.rows()) == (3, [0, 6])


def test_nothing_is_left_after_the_last_step() -> None:
    position, cursor = started(3)
    for step in range(8):
        position.finish_step(step)
    assert cursor.divide(of(2), 8, trains=False) == 0, "the batch that three members drop is not for two"
    assert position.at_epoch_end
    position.start_epoch(1)
    assert cursor.next_pass() == PassPlace(number=1, replayed=0, skipped=0)


@pytest.mark.parametrize(
    ("uneven", "left", "place"),
    [
        (Uneven.DROP, 8, PassPlace(number=2, replayed=2, skipped=0, taken_rows=9)),
        (Uneven.PAD, 9, PassPlace(number=2, replayed=2, skipped=4)),
    ],
)
def test_a_gang_of_another_size_resumes_at_the_very_batch(uneven: Uneven, left: int, place: PassPlace) -> None:
    position = Position()
    cursor = BatchCursor(position, of(2, uneven), BATCHES)
    position.start_fit(cursor.steps)
    position.recall_rows([[2, 9]])
    epoch, batch = position.place_now(2, 3)
    assert cursor.steps is not None
    assert (epoch, cursor.steps - batch) == (2, left)
    position.resume(epoch, batch, 19)
    position.recall([[0, 3]])
    position.start_epoch(epoch)
    assert cursor.next_pass() == place


def test_more_members_divide_a_pass_that_no_step_has_read() -> None:
    position, cursor = started(2)
    for step in range(12):
        position.finish_step(step)
    position.start_epoch(1)
    assert cursor.divide(of(3), 12, trains=True) == 8
    assert cursor.rows() == [0, BATCHES]
    assert cursor.next_pass() == PassPlace(number=1, replayed=0, skipped=0)
    assert (position.batch, position.per_epoch) == (0, 8)


@pytest.mark.parametrize(("steps", "can"), [(0, True), (22, True), (23, True), (24, False), (25, True)])
def test_more_members_divide_no_rest_that_is_too_short_for_their_step(steps: int, can: bool) -> None:
    """After the last step of an epoch they divide the next one."""
    position, cursor = started(1)
    for step in range(steps):
        position.finish_step(step)
    assert cursor.can_divide(of(2), steps) is can
    assert cursor.can_divide(of(1), steps)


def test_batches_that_make_up_steps_are_steps_to_skip() -> None:
    position = Position()
    cursor = BatchCursor(position, of(3), BATCHES)
    position.start_fit(cursor.steps)
    position.recall_rows([[0, 9]])
    position.resume(0, 3, 3)
    position.start_epoch(0)
    assert cursor.next_pass() == PassPlace(number=0, replayed=0, skipped=3)


def test_rows_of_data_are_divided_as_batches_are() -> None:
    position = Position()
    cursor = RowCursor(position, RowShare(of(3), 100, 4))
    position.start_fit(cursor.steps)
    position.start_epoch(0)
    cursor.next_pass()
    position.finish_step(0)
    assert cursor.divide(of(2), 1, trains=False) == 11
    assert cursor.next_pass() == PassPlace(number=0, replayed=0, skipped=0, taken_rows=12)
    position.finish_step(1)
    assert cursor.rows() == [0, 20]
