"""The position of a user's own loop: each row once in a pass, also when a gang of another size continues it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sparktrain.errors import UserError
from sparktrain.training.data.assignment import share
from sparktrain.training.data.pass_progress import PassProgress
from sparktrain.training.data.position import Position
from sparktrain.training.data.row_order import RowShare

SOURCE = {"name": "train", "seed": 3}


def members(rows: int, batch: int, size: int) -> list[PassProgress]:
    shares = [RowShare(share(rank, size, "drop"), rows, batch) for rank in range(size)]
    return [PassProgress(each, Position(), SOURCE) for each in shares]


def read(progress: PassProgress, steps: int | None = None) -> list[int]:
    """The positions of some steps of a pass, or of all that are left."""
    started = progress.start()
    positions: list[int] = []
    for step in range(started.share.steps if steps is None else steps):
        progress.take(started)
        positions += started.share.positions(step, step + 1).tolist()
    if steps is None:
        progress.end(started)
    return positions


@given(some.integers(6, 200), some.integers(1, 9), some.integers(1, 3), some.integers(1, 3), some.data())
def test_rows_come_once_in_gangs_of_any_sizes(rows: int, batch: int, before: int, after: int, data: Any) -> None:
    batches = -(-rows // batch)
    if batches < max(before, after):
        return
    steps = data.draw(some.integers(0, batches // before))
    gang = members(rows, batch, before)
    seen = [position for each in gang for position in read(each, steps)]
    [state] = {str(each.state()): each.state() for each in gang}.values()
    for each in members(rows, batch, after):
        each.load(state)
        assert each.state() == state
        if state["epoch"] == 0:
            seen += read(each)
            assert each.epoch == 1
    assert len(set(seen)) == len(seen)
    assert len(seen) > rows - batch * (before + after)


def test_a_loop_that_stops_early_ends_its_pass() -> None:
    [alone] = members(20, 4, 1)
    started = alone.start()
    alone.take(started)
    assert alone.state() == {"epoch": 0, "rows": 4, "source": SOURCE}
    alone.end(started)
    assert alone.state() == {"epoch": 1, "rows": 0, "source": SOURCE}
    second = alone.start()
    alone.take(started)
    alone.end(started)
    assert alone.state() == {"epoch": 1, "rows": 0, "source": SOURCE}, "an earlier iterator changes nothing"
    assert second.number == 1


def test_the_passes_of_fit_are_those_of_its_callbacks() -> None:
    position = Position()
    alone = PassProgress(RowShare(share(0, 1, "drop"), 20, 4), position, SOURCE)
    position.start_fit(5)
    position.resume(1, 2, 7)
    position.start_epoch(1)
    started = alone.start()
    assert (started.number, started.skipped) == (1, 2)
    assert alone.epoch == 0


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({}, r"a position in data was expected, not \{\}: pass what state_dict\(\) returned"),
        ({"epoch": True, "rows": 0, "source": SOURCE}, "a position in data was expected"),
        ({"epoch": 0, "rows": -1, "source": SOURCE}, "a position in data was expected"),
        ({"epoch": 0, "rows": 0, "source": SOURCE | {"seed": 4}}, "pass the same data, in the same order"),
    ],
)
def test_a_position_of_something_else_is_refused(state: dict[str, Any], words: str) -> None:
    [alone] = members(20, 4, 1)
    with pytest.raises(UserError, match=words):
        alone.load(state)
    assert alone.epoch == 0


def test_a_process_that_continues_a_loop_after_the_last_batch_of_a_pass_ends_that_pass_first() -> None:
    ended, joining = members(20, 4, 2)
    started = ended.start()
    for _ in range(started.share.steps):
        ended.take(started)
    assert ended.state()["epoch"] == 1
    joining.load(ended.open_state())
    assert joining.epoch == 0
    opened = joining.start()
    assert (opened.number, opened.share.steps - opened.skipped) == (0, 0)
    joining.end(opened)
    assert joining.epoch == 1
    assert joining.open_state() == joining.state()
    assert joining.start().number == 1


def test_a_process_that_waited_reads_the_share_of_the_rank_that_it_gets() -> None:
    position = Position()
    ranks = [1]
    position.rank_now = lambda: ranks[-1]
    waited = PassProgress(RowShare(share(1, 2, "drop"), 24, 4), position, SOURCE)
    [lost, _] = members(24, 4, 2)
    read(lost, 1)
    waited.load(lost.open_state())
    ranks.append(0)
    assert read(waited) == [8, 9, 10, 11, 16, 17, 18, 19], "rank 0, after the step in which the gang took 8 rows"
    position.start_fit(3)
    position.start_epoch(0)
    assert waited.start().share.share.rank == 0, "and in a fit"
