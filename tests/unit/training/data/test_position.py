"""Which pass a feed starts, and where in it, from the position that the callbacks keep."""

import pytest

from sparktrain.training.data.position import Cursor, Position


def epoch(position: Position, cursor: Cursor, number: int, steps: int) -> tuple[int, int, int]:
    """Run one epoch of a fit; returns what the feed got at the start of its pass."""
    position.start_epoch(number)
    started = cursor.start_pass()
    for step in range(steps):
        position.finish_step(step)
    position.leave_epoch()
    return started


def test_passes_are_counted_without_any_callback() -> None:
    cursor = Cursor(Position(), 5)

    assert [cursor.start_pass() for _ in range(3)] == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]


def test_a_resumed_epoch_replays_those_before_it_and_skips_its_first_steps() -> None:
    position = Position()
    cursor = Cursor(position, 5)
    position.start_fit(5)
    position.resume(epoch=3, batch=2, step=17)

    assert epoch(position, cursor, 3, 3) == (3, 3, 2)
    assert (position.batch, position.step, position.at_pass_end, position.at_epoch_end) == (5, 20, True, True)
    assert epoch(position, cursor, 4, 4) == (4, 0, 0)
    assert (position.batch, position.step, position.at_pass_end, position.at_epoch_end) == (4, 24, False, False)


def test_steps_beyond_the_end_of_the_data_do_not_count() -> None:
    position = Position()
    cursor = Cursor(position, 6)
    position.start_fit(6)
    position.start_epoch(0)
    cursor.start_pass()
    position.finish_step(3)
    position.finish_step(7)

    assert (position.batch, position.step) == (6, 6)


def test_evaluated_data_is_read_from_its_start() -> None:
    position = Position()
    training, validation = Cursor(position, 5), Cursor(position, 3)
    position.start_fit(5)
    position.resume(epoch=1, batch=4, step=9)

    assert epoch(position, training, 1, 1) == (1, 1, 4)
    assert validation.start_pass() == (0, 0, 0)
    assert epoch(position, training, 2, 5) == (2, 0, 0)
    assert validation.start_pass() == (1, 0, 0)


def test_a_resuming_process_repeats_a_pass_before_training() -> None:
    whole, resumed = Position(), Position()
    first, second = Cursor(whole, 5), Cursor(resumed, 5)
    assert first.start_pass() == second.start_pass() == (0, 0, 0)  # such as that of adapt()
    whole.start_fit(5)
    resumed.start_fit(5)
    resumed.resume(epoch=2, batch=0, step=10)

    assert [epoch(whole, first, number, 5)[0] for number in range(3)] == [1, 2, 3]
    assert epoch(resumed, second, 2, 5) == (3, 2, 0)


def test_endless_data_resumes_after_all_steps() -> None:
    position = Position()
    cursor = Cursor(position, None, endless=True)
    position.start_fit(7)
    position.resume(epoch=2, batch=3, step=17)

    assert epoch(position, cursor, 2, 4) == (0, 0, 17)
    assert (position.at_epoch_end, position.at_pass_end) == (True, False)


def test_epochs_that_are_no_passes_resume_by_steps() -> None:
    position = Position()
    cursor = Cursor(position, 10)
    position.start_fit(4)
    position.resume(epoch=6, batch=1, step=23)

    assert epoch(position, cursor, 6, 3) == (2, 2, 3)


def test_the_end_of_a_pass_may_be_known_late() -> None:
    position = Position()
    cursor = Cursor(position, None)
    position.start_fit(None)
    position.resume(epoch=1, batch=2, step=8)
    position.start_epoch(1)
    number, _, skipped = cursor.start_pass()
    position.finish_step(0)
    assert (number, skipped, position.at_epoch_end) == (1, 2, False)

    cursor.end_pass(number, 6)
    position.finish_step(2)
    assert not position.at_epoch_end
    position.finish_step(3)
    assert position.at_epoch_end
    cursor.end_pass(number - 1, 100)  # of a pass that is over
    assert position.at_epoch_end


def test_each_fit_starts_at_its_first_epoch_and_steps_grow_over_all() -> None:
    position = Position()
    first, second = Cursor(position, 5), Cursor(position, 4)
    position.start_fit(5)
    assert [epoch(position, first, number, 5) for number in range(2)] == [(0, 0, 0), (1, 0, 0)]
    position.start_fit(4)
    assert [epoch(position, second, number, 4) for number in range(2)] == [(0, 0, 0), (1, 0, 0)]
    position.start_fit(5)
    assert epoch(position, first, 7, 5) == (2, 0, 0)
    assert (position.fit, position.start_step, position.first, position.step) == (3, 18, 7, 23)


def test_a_fit_that_resumes_counts_the_passes_of_those_before_it() -> None:
    whole, resumed = Position(), Position()
    for position, first_fits in ((whole, 2), (resumed, 0)):
        trained, validated = Cursor(position, 5), Cursor(position, 3)
        for number in range(first_fits):
            position.start_fit(5)
            epoch(position, trained, number, 5)
            validated.start_pass()
    whole.start_fit(5)
    epoch(whole, whole.feeds[0], 2, 5)
    epoch(whole, whole.feeds[0], 3, 2)
    for _ in range(3):
        resumed.start_fit(5)
    assert whole.passes() == [[2, 4], [2, 2]]
    resumed.recall(whole.passes())
    resumed.resume(whole.epoch, whole.batch, whole.step, start_step=whole.start_step, first=whole.first)

    assert epoch(resumed, resumed.feeds[0], 3, 3) == (3, 3, 2)
    assert resumed.feeds[1].start_pass() == (2, 2, 0)
    assert epoch(resumed, resumed.feeds[0], 4, 5) == (4, 0, 0)
    assert (resumed.step, resumed.passes()) == (whole.step + 3 + 5, [[2, 5], [3, 3]])


def test_an_endless_pass_is_never_replayed() -> None:
    position = Position()
    cursor = Cursor(position, None, endless=True)
    position.start_fit(7)
    position.recall([[3, 4]])
    position.resume(epoch=1, batch=2, step=30, start_step=21)

    assert epoch(position, cursor, 1, 5) == (0, 0, 9)


@pytest.mark.parametrize(("feeds", "steps"), [(0, 10), (1, 12)])
def test_keras_rounds_up_where_it_runs_several_steps_at_a_time(feeds: int, steps: int) -> None:
    position = Position()
    cursors = [Cursor(position, None, endless=True) for _ in range(feeds)]
    position.start_fit(10)
    position.start_epoch(0)
    assert [cursor.start_pass() for cursor in cursors] == [(0, 0, 0)] * feeds
    position.finish_step(11)

    assert position.step == steps


@pytest.mark.parametrize(
    ("before", "after", "batch", "place"),
    [
        (1, 2, 0, (3, 0)),
        (1, 2, 8, (3, 4)),
        (1, 2, 9, (3, 4)),
        (1, 2, 23, (3, 11)),
        (2, 1, 7, (3, 14)),
        (3, 2, 5, (3, 7)),
        (2, 3, 11, (3, 7)),
        (2, 2, 7, (3, 7)),
    ],
)
def test_a_gang_of_another_size_continues_after_the_batches_that_were_taken(
    before: int, after: int, batch: int, place: tuple[int, int]
) -> None:
    """An epoch has 24 batches, and each member takes one in a step."""
    position = Position()
    cursor = Cursor(position, 24 // before, members=before)
    position.start_fit(24 // before)
    for number in range(3):
        epoch(position, cursor, number, 24 // before)
    epoch(position, cursor, 3, batch)
    saved, batch = position.rows(), position.batch

    position = Position()
    Cursor(position, 24 // after, members=after)
    position.start_fit(24 // after)
    position.recall_rows(saved)
    assert position.place_now(3, batch) == place


def test_an_epoch_without_a_step_for_the_larger_gang_is_over() -> None:
    position = Position()
    Cursor(position, 8, members=3)  # of 25 batches, one is dropped
    position.start_fit(8)
    position.recall_rows([[2, 24]])
    assert position.place_now(2, 24) == (3, 0)


def test_a_loop_continues_the_pass_that_it_was_in_when_it_counted_a_step_last() -> None:
    cursor = Cursor(Position(), 3, members=2)
    assert cursor.loop_place() == [0, 0, 2]
    assert cursor.start_pass() == (0, 0, 0)
    for _ in range(3):
        cursor.count_step()
    assert cursor.start_pass() == (1, 0, 0)
    assert cursor.loop_place() == [0, 3, 2], "what the loop does after its last batch is still to come"
    cursor.count_step()
    assert cursor.loop_place() == [1, 1, 2]
    joining = Cursor(Position(), 6, members=1)
    joining.continue_loop(*cursor.loop_place())
    assert joining.loop_place() == [1, 2, 1]
    assert joining.start_pass() == (1, 1, 2)
    assert joining.start_pass() == (2, 0, 0)
