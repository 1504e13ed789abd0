"""Whole steps for all members of a gang, single rows, and what the driver learns of it."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from sparktrain.clock import SystemClock
from sparktrain.errors import SpecError
from sparktrain.protocol.row_pickles import pickled
from sparktrain.training.data.stream.feed_queue import MOST_BATCHES, Feeder, FeedQueue, PartitionKey
from sparktrain.training.data.stream.feed_reader import FeedReader, alone
from sparktrain.training.data.stream.row_wait import RowWait
from sparktrain.training.data.stream.stream_data import StreamData


class Stream:
    """A queue that has each epoch's batches as soon as it is asked for, and its reader."""

    def __init__(self, *batches: pa.RecordBatch) -> None:
        assert len(batches) <= MOST_BATCHES
        self._batches = batches
        self._queue = FeedQueue("train")
        self.reports: list[tuple[int, str]] = []
        self.reader = FeedReader(self._queue, self._report, RowWait(lambda waiting: None, SystemClock()))

    def _report(self, epoch: int, phase: str) -> None:
        self.reports.append((epoch, phase))
        if phase == "asked":
            one, key, rows = Feeder(lambda: False), PartitionKey(epoch, 0, 0), 0
            self._queue.claim(one, key)
            for each in self._batches:
                self._queue.put(one, key, each, rows, 0)
                rows += each.num_rows
            self._queue.release(one)
            self._queue.end(epoch)


def numbers(*sizes: int) -> Stream:
    def parts() -> Iterator[pa.RecordBatch]:
        first = 0
        for size in sizes:
            yield pa.RecordBatch.from_pydict({"id": pa.array(range(first, first + size), pa.int64())})
            first += size

    return Stream(*parts())


def steps_of(stream: Stream, size: int, others: int = 10**6) -> list[int]:
    """The ids of all steps, in a gang where another member has `others` steps left."""

    def agree(mine: int) -> int:
        nonlocal others
        agreed = min(mine, others)
        others -= agreed
        return agreed

    chunks = list(stream.reader.steps(size, agree))
    assert all(each.num_rows % size == 0 for each in chunks)
    return [row for each in chunks for row in each.column("id").to_pylist()]


@pytest.mark.parametrize("sizes", [(10,), (3, 3, 4), (1, 1, 1, 1, 6), (0, 10)])
def test_steps_cross_the_bounds_of_batches_and_drop_the_rest(sizes: tuple[int, ...]) -> None:
    assert steps_of(numbers(*sizes), 4) == list(range(8))
    assert steps_of(numbers(*sizes), 11) == []


def test_all_members_stop_with_the_first_that_lacks_a_step() -> None:
    stream = numbers(5, 5, 5)
    assert steps_of(stream, 2, others=3) == list(range(6))
    assert stream.reports == [(1, "asked"), (1, "flowing")], "the job had ended: nothing is left to stop"


def test_a_gang_of_one_may_keep_the_last_rows() -> None:
    chunks = list(numbers(5, 5).reader.steps(4, partial=True))
    assert [row for each in chunks for row in each.column("id").to_pylist()] == list(range(10))


def test_a_first_look_takes_nothing_from_the_epoch() -> None:
    stream = numbers(5, 5)
    first = stream.reader.peek()
    assert first is not None
    assert first.num_rows == 5
    assert steps_of(stream, 5) == list(range(10))
    assert steps_of(stream, 5) == list(range(10))
    assert [each for each in stream.reports if each[1] == "asked"] == [(1, "asked"), (2, "asked")]


def test_single_rows_end_with_the_epoch_and_the_next_call_starts_another() -> None:
    reader = numbers(2, 3).reader
    assert reader.next_batch(4) == [(0,), (1,), (2,), (3,)]
    assert not reader.should_stop()
    assert reader.next_batch(4) == [(4,)]
    assert reader.should_stop()
    assert reader.next_batch(1) == [(0,)]
    assert reader.epoch == 2


def test_python_objects_arrive_as_they_were() -> None:
    rows = [{"i": i, "text": "x" * i, "nested": [i, (i,)]} for i in range(200)] + [lambda: 7]
    parts = list(pickled(iter(rows)))
    assert 1 < len(parts) <= MOST_BATCHES
    found = Stream(*parts).reader.next_batch(1000)
    assert found[:200] == rows[:200]
    assert found[200]() == 7


@pytest.mark.parametrize("size", [0, -1, True, 2.5])
def test_a_batch_size_is_a_number_from_one(size: Any) -> None:
    """With the message of data that is no stream, and before the first row is asked for."""
    stream = numbers(3)
    data = StreamData("train", (), stream.reader, alone, 1)
    with pytest.raises(SpecError, match="batch_size"):
        next(data.iter_batches(batch_size=size))
    with pytest.raises(SpecError, match="batch_size"):
        data.to_tf(batch_size=size)
    assert stream.reports == []
