"""Whole steps for all members of a gang, single rows, and what the driver learns of it."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.errors import SpecError, StreamError
from sparktrain.protocol.row_pickles import pickled
from sparktrain.training.data.stream.epoch_reader import RowWait
from sparktrain.training.data.stream.feed_queue import MOST_BATCHES, Feeder, FeedQueue, PartitionKey
from sparktrain.training.data.stream.feed_reader import FeedReader, alone
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


def test_a_first_look_takes_nothing_from_the_epoch() -> None:
    stream = numbers(5, 5)
    first = stream.reader.epochs.peek()
    assert first is not None
    assert first.num_rows == 5
    assert steps_of(stream, 5) == list(range(10))
    assert steps_of(stream, 5) == list(range(10))
    assert [each for each in stream.reports if each[1] == "asked"] == [(1, "asked"), (2, "asked")]


def test_single_rows_end_with_the_epoch_and_the_next_call_starts_another() -> None:
    reader = numbers(2, 3).reader
    assert reader.next_batch(4) == [(0,), (1,), (2,), (3,)]
    assert not reader.ended
    assert reader.next_batch(4) == [(4,)]
    assert reader.ended
    assert reader.next_batch(1) == [(0,)]
    assert reader.epochs.epoch == 2


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


def frame(*sizes: int) -> Stream:
    """A stream of the columns of a DataFrame."""
    return Stream(*(pa.RecordBatch.from_pydict({"id": range(size), "pixels": [b"x" * size] * size}) for size in sizes))


def test_rows_of_a_frame_are_tuples_or_arrow() -> None:
    reader = frame(3, 2).reader
    assert reader.next_batch(2) == [(0, b"xxx"), (1, b"xxx")]
    arrow = reader.next_arrow(2)
    assert arrow is not None
    assert arrow.to_pydict() == {"id": [2, 0], "pixels": [b"xxx", b"xx"]}
    assert reader.next_batch(9) == [(1, b"xx")]
    assert reader.ended


def test_arrow_that_comes_in_one_batch_is_not_copied() -> None:
    reader = frame(3).reader
    first, last = reader.next_arrow(2), reader.next_arrow(2)
    assert first is not None
    assert last is not None
    assert (first.num_rows, last.num_rows, reader.ended) == (2, 1, True)
    assert first.column(0).buffers()[1].address == last.column(0).buffers()[1].address


def test_python_objects_have_no_arrow() -> None:
    reader = Stream(*pickled(iter([1, 2]))).reader
    with pytest.raises(StreamError, match="these are an RDD's objects: use next_batch"):
        reader.next_arrow(1)


class Partitions(Stream):
    """A queue that has partitions of Python objects, each in the batches that are given."""

    def __init__(self, *partitions: list[list[int]]) -> None:
        super().__init__()
        self.partitions = partitions

    def _report(self, epoch: int, phase: str) -> None:
        self.reports.append((epoch, phase))
        if phase == "asked":
            for number, batches in enumerate(self.partitions):
                one, key = Feeder(lambda: False), PartitionKey(epoch, 0, number)
                self._queue.claim(one, key)
                for place, rows in enumerate(batches):
                    self._queue.put(one, key, next(pickled(iter(rows))), place, 0)
                self._queue.complete(one, key, len(batches))
                self._queue.release(one)

    def used(self) -> list[bool]:
        """Which partitions the function has used."""
        keys = [PartitionKey(1, 0, number) for number in range(len(self.partitions))]
        return [self._queue._is_used(key) for key in keys]


def test_whole_partitions_end_a_batch() -> None:
    """Also the last one, while another may yet come."""
    stream = Partitions([[1, 2], [3]], [], [[4]], [[5, 6]])
    found = [stream.reader.next_batch(2, whole=True) for _ in range(4)]
    assert found == [[1, 2], [3], [4], [5, 6]]
    stream = Partitions([[1, 2, 3]])
    assert [stream.reader.next_batch(2, whole=True) for _ in range(2)] == [[1, 2], [3]]
    assert not stream.reader.ended


def test_a_partition_is_used_when_all_its_rows_are_handed_out_and_more_are_wanted() -> None:
    stream = Partitions([[1, 2], [3]], [[4]])
    expected = [([1, 2], [False, False]), ([3, 4], [False, False])]
    for rows, used in expected:
        assert (stream.reader.next_batch(2), stream.used()) == (rows, used)
    stream._queue.end(1)
    assert stream.reader.next_batch(2) == []
    stream = Partitions([[1], [2]], [[3]])
    steps = stream.reader.steps(1, lambda mine: min(mine, 1))
    seen = []
    for _ in range(3):
        next(steps)
        seen.append(stream.used())
    assert seen == [[False, False], [False, False], [True, False]]


def test_steps_use_the_batches_that_they_have_left_behind() -> None:
    stream = Partitions([[1]], [[2]], [[3]])
    steps = stream.reader.steps(2, lambda mine: min(mine, 1))  # rows of Arrow: one for each batch here
    next(steps)
    assert stream.used() == [False, False, False]
    stream._queue.end(1)
    assert list(steps) == []


def test_a_function_that_needs_no_rows_informs_the_driver_where_it_waits() -> None:
    silent, asking = numbers(3), numbers(3)
    silent.reader.terminate()
    asking.reader.terminate(ask=True)
    assert (silent.reports, [each[1] for each in asking.reports]) == ([], ["asked"]), "its rows had come: none is left"
    assert asking.reader.ended
