"""Training resumes at the next row, in a gang of any size: simulated members, without TensorFlow."""

from collections.abc import Iterator
from itertools import chain

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sparktrain.training.data.assignment import BatchShare, Uneven
from sparktrain.training.data.position import Position
from sparktrain.training.data.row_cursor import RowCursor
from sparktrain.training.data.row_order import RowShare

Step = tuple[int, list[int]]
"""The number of a pass, and the rows of one step of a whole gang."""
Checkpoint = dict[str, object]


class Gang:
    """All members of a gang, which call `fit` as Keras and the callbacks of checkpoints do."""

    def __init__(self, rows: int, batch: int, size: int, uneven: Uneven = Uneven.DROP) -> None:
        self.shares = [RowShare(BatchShare(rank, size, uneven), rows, batch) for rank in range(size)]
        self.positions = [Position() for _ in self.shares]
        self.cursors = [RowCursor(at, share) for at, share in zip(self.positions, self.shares, strict=True)]
        self.saved: Checkpoint = {}

    def fit(self, epochs: int, checkpoint: Checkpoint | None = None, per_epoch: int | None = None) -> Iterator[Step]:
        """Train, step by step; `saved` is the checkpoint after each."""
        steps = self.shares[0].steps
        first = 0
        for position in self.positions:
            position.start_fit(per_epoch or steps)
            if checkpoint is not None:
                first = _resume(position, checkpoint)
        feed: Iterator[Step] = iter(())
        for epoch in range(first, epochs):
            for position in self.positions:
                position.start_epoch(epoch)
            feed = self._pass() if per_epoch is None else feed
            for done, _ in enumerate(range(self.positions[0].batch, per_epoch or steps)):
                step = next(feed, None)
                if step is None:
                    feed = self._pass()
                    step = next(feed)
                for position in self.positions:
                    position.finish_step(done)
                self._save(epoch)
                yield step
            for position in self.positions:
                position.leave_epoch()

    def _pass(self) -> Iterator[Step]:
        started = [cursor.start_pass() for cursor in self.cursors]
        assert len(set(started)) == 1, "members disagree"
        number, taken, skipped = started[0]
        rest = [RowShare(each.share, each.rows, each.batch, taken) for each in self.shares]
        for step in range(skipped, rest[0].steps):
            yield (
                number,
                [row for each in rest for row in each.positions(step, step + 1)[: each.real(step)].tolist()],
            )

    def _save(self, epoch: int) -> None:
        at = self.positions[0]
        assert {each.batch for each in self.positions} == {at.batch}
        assert self.cursors[0].rows() == self.cursors[-1].rows()
        over = at.per_epoch is not None and at.batch >= at.per_epoch
        self.saved = {
            "place": (epoch + 1, 0) if over else (epoch, at.batch),
            "step": at.step,
            "start_step": at.start_step,
            "first": at.first,
            "passes": at.passes(),
            "rows": at.rows(),
        }


def _resume(position: Position, checkpoint: Checkpoint) -> int:
    """As the callbacks do; returns the epoch."""
    position.recall_rows(checkpoint["rows"])  # type: ignore[arg-type]
    epoch, batch = position.place_now(*checkpoint["place"])  # type: ignore[misc]
    position.resume(
        epoch, batch, checkpoint["step"], start_step=checkpoint["start_step"], first=checkpoint["first"]  # type: ignore[arg-type]
    )  # fmt: skip
    position.recall(checkpoint["passes"])  # type: ignore[arg-type]
    return epoch


def lived(rows: int, batch: int, lives: list[tuple[int, int]], uneven: Uneven, epochs: int) -> list[Step]:
    """The steps of a training; `lives` has the size of each gang and the steps until it ends. The last has no end."""
    found: list[Step] = []
    checkpoint: Checkpoint | None = None
    for number, (size, ends_after) in enumerate(lives):
        gang = Gang(rows, batch, size, uneven)
        training = gang.fit(epochs, checkpoint)
        for done, step in enumerate(training, 1):
            found.append(step)
            checkpoint = gang.saved
            if done == ends_after and number < len(lives) - 1:
                break
    return found


def passes_of(steps: list[Step]) -> dict[int, list[int]]:
    """The rows of each pass."""
    found: dict[int, list[int]] = {}
    for number, rows in steps:
        found.setdefault(number, []).extend(rows)
    return found


@given(
    rows=st.integers(6, 60),
    batch=st.integers(1, 5),
    lives=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 30)), min_size=1, max_size=5),
    uneven=st.sampled_from(Uneven),
)
def test_each_row_trains_once_in_each_epoch_over_gangs_of_any_sizes(
    rows: int, batch: int, lives: list[tuple[int, int]], uneven: Uneven
) -> None:
    assume(all(-(-rows // batch) >= size for size, _ in lives))
    found = passes_of(lived(rows, batch, lives, uneven, epochs=3))

    assert sorted(found) == [0, 1, 2]
    largest = max(size for size, _ in lives)
    for number in found:
        assert len(found[number]) == len(set(found[number])), f"pass {number} has a row twice"
        assert len(found[number]) > rows - batch * largest
        assert uneven is Uneven.DROP or sorted(found[number]) == list(range(rows))


@given(
    rows=st.integers(4, 60),
    batch=st.integers(1, 5),
    size=st.integers(1, 3),
    per_epoch=st.integers(1, 30),
    ends=st.lists(st.integers(1, 40), max_size=3),
    uneven=st.sampled_from(Uneven),
)
def test_epochs_that_are_no_passes_resume_at_the_next_row(
    rows: int, batch: int, size: int, per_epoch: int, ends: list[int], uneven: Uneven
) -> None:
    assume(-(-rows // batch) >= size)
    whole = list(Gang(rows, batch, size, uneven).fit(4, per_epoch=per_epoch))
    found: list[Step] = []
    checkpoint: Checkpoint | None = None
    for ends_after in [*ends, None]:
        gang = Gang(rows, batch, size, uneven)
        for done, step in enumerate(gang.fit(4, checkpoint, per_epoch), 1):
            found.append(step)
            checkpoint = gang.saved
            if done == ends_after:
                break

    assert found == whole
    assert len(whole) == 4 * per_epoch


def test_rows_that_a_pass_dropped_are_not_taken_up_by_a_smaller_gang() -> None:
    steps = lived(100, 10, [(3, 3), (1, 0)], Uneven.DROP, epochs=2)

    assert [len(rows) for _, rows in steps] == [30] * 3 + [10] * 10
    assert [number for number, _ in steps] == [0] * 3 + [1] * 10


def test_an_epoch_with_too_few_rows_for_a_larger_gang_is_over() -> None:
    steps = lived(100, 10, [(2, 4), (3, 0)], Uneven.DROP, epochs=2)

    assert [(number, len(rows)) for number, rows in steps] == [(0, 20)] * 4 + [(1, 30)] * 3


def test_progress_is_counted_in_steps_of_the_new_gang() -> None:
    gang = Gang(120, 10, 2)
    training = gang.fit(3)
    for _ in range(6 + 3):
        next(training)
    assert (gang.saved["place"], gang.saved["rows"]) == ((1, 3), [[1, 60]])

    smaller = Gang(120, 10, 1)
    rest = smaller.fit(3, gang.saved)
    assert next(rest) == (1, list(range(60, 70)))
    assert (smaller.positions[0].offset, smaller.positions[0].batch) == (6, 7)
    assert len(list(rest)) == 5 + 12


def test_a_later_fit_resumes_with_the_passes_of_the_earlier_one() -> None:
    whole, resumed = Gang(40, 4, 2), Gang(40, 4, 2)
    first, second = list(whole.fit(2)), whole.fit(2)
    expected = [next(second) for _ in range(7)]
    saved = whole.saved
    expected += list(second)
    assert [number for number, _ in first[::5]] == [0, 1]
    assert [number for number, _ in expected[::5]] == [2, 3]

    for position in resumed.positions:
        position.start_fit(5)  # the first fit had finished: it trains nothing
    assert list(resumed.fit(2, saved)) == expected[7:]


def test_a_feed_of_another_fit_remembers_no_rows() -> None:
    position = Position()
    share = RowShare(BatchShare(0, 1, Uneven.DROP), 40, 4)
    trained, validated = RowCursor(position, share), RowCursor(position, share)
    position.start_fit(10)
    position.start_epoch(0)
    assert trained.start_pass() == (0, 0, 0)
    position.finish_step(2)
    position.leave_epoch()
    assert validated.start_pass() == (0, 0, 0)

    assert position.rows() == [[0, 12], None]
    position.start_fit(10)
    assert position.rows() == [None, None]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_checkpoint_without_rows_resumes_after_its_steps(size: int) -> None:
    gang, other = Gang(60, 5, size), Gang(60, 5, size)
    steps = list(gang.fit(3))
    training = other.fit(3)
    for _ in range(len(steps) // 2):
        next(training)
    old = {**other.saved, "rows": []}

    assert list(Gang(60, 5, size).fit(3, old)) == steps[len(steps) // 2 :]
    assert list(chain.from_iterable(rows for _, rows in steps[: 12 // size])) == list(range(60))
