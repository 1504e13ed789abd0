"""The trainer's side of a stream: its rows as batches of Arrow, whole steps for a gang, or single rows."""

import pickle
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pyarrow as pa

from sparktrain.errors import StreamError
from sparktrain.protocol.feed_messages import PICKLED
from sparktrain.training.data.stream.feed_queue import FeedQueue
from sparktrain.training.data.stream.row_wait import RowWait

MOST_STEPS_ROWS = 4096
"""About the most rows that one agreement of a gang covers."""

Phase = Literal["asked", "flowing", "enough"]
"""It wants the rows of an epoch, has the first ones, or needs no more."""
Agree = Callable[[int], int]
"""The least of the numbers that the members of the gang pass. Each calls it equally often; it blocks until all do."""


def alone(steps: int) -> int:
    """The agreement of a gang of one."""
    return steps


class FeedReader:
    """The rows of one stream in this member. One thread uses it at a time.

    Each call of `batches`, `steps` or `rows` reads the next epoch, for which the driver runs the feeding job again.
    """

    def __init__(self, queue: FeedQueue, report: Callable[[int, Phase], None], wait: RowWait) -> None:
        """`report` informs the driver about this member and an epoch."""
        self._queue = queue
        self._report = report
        self._wait = wait
        self._ahead: tuple[Iterator[pa.RecordBatch], pa.RecordBatch | None] | None = None
        """An epoch that `peek` has started, and its first batch."""
        self.epoch = 0
        """The epoch that is read, from 1; 0 before the first."""
        self.num_rows = 0
        """Rows that were taken in this epoch."""
        self._single: Iterator[Any] | None = None
        self._ended = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches of the next epoch, as feeders cut them. Blocks for rows without limit.

        When the caller stops early, the feeders end. Raises StreamError when the feeding job failed.
        """
        if self._ahead is None:
            yield from self._epoch()
            return
        (source, first), self._ahead = self._ahead, None
        try:
            if first is not None:
                yield first
            yield from source
        finally:
            source.close()  # type: ignore[attr-defined] # it is a generator

    def peek(self) -> pa.RecordBatch | None:
        """The first batch of the next epoch, which stays in it; None where it has no rows. Blocks for rows."""
        if self._ahead is None:
            source = self._epoch()
            self._ahead = source, next(source, None)
        return self._ahead[1]

    def close(self) -> None:
        """Need no more rows of the epoch that is read, if any: its feeders end."""
        if self._queue.stop(self.epoch):
            self._report(self.epoch, "enough")

    def _epoch(self) -> Iterator[pa.RecordBatch]:
        self.epoch += 1
        self.num_rows = 0
        epoch = self.epoch
        self._queue.start(epoch)
        self._report(epoch, "asked")
        try:
            while (batch := self._take()) is not None:
                if not self.num_rows:
                    self._report(epoch, "flowing")
                self.num_rows += batch.num_rows
                yield batch
        finally:
            if self._queue.stop(epoch):
                self._report(epoch, "enough")

    def _take(self) -> pa.RecordBatch | None:
        with self._wait.waiting():
            return self._queue.take()

    def steps(self, batch_size: int, agree: Agree = alone, *, partial: bool = False) -> Iterator[pa.RecordBatch]:
        """Batches of a multiple of `batch_size` rows, as many steps on each member of the gang.

        All members stop when the first one lacks a full step; what they have beyond that is dropped. `partial` adds the
        last rows, for a gang of one. Raises StreamError.
        """
        most = max(1, MOST_STEPS_ROWS // batch_size)
        waiting = _Rows()
        source = self.batches()
        try:
            while True:
                self._fill(waiting, source, batch_size, most)
                with self._wait.waiting():  # another member may wait for rows
                    steps = agree(min(most, waiting.count // batch_size))
                if not steps:
                    break
                yield waiting.take(steps * batch_size)
            if partial and waiting.count:
                yield waiting.take(waiting.count)
        finally:
            source.close()  # type: ignore[attr-defined] # as above

    def _fill(self, waiting: "_Rows", source: Iterator[pa.RecordBatch], batch_size: int, most: int) -> None:
        """Wait for one full step; add what has arrived beyond it without waiting."""
        while waiting.count < batch_size or (waiting.count < most * batch_size and self._queue.waiting):
            if (batch := next(source, None)) is None:
                return
            waiting.add(batch)

    # ---- rows as Python objects

    def rows(self) -> Iterator[Any]:
        """The rows of the next epoch: Python objects of an RDD, or tuples of the values of a DataFrame's columns."""
        for batch in self.batches():
            yield from unpacked(batch)

    def next_batch(self, count: int) -> list[Any]:
        """The next `count` rows, fewer only at the end of the epoch; then `should_stop` is True. Blocks for rows."""
        if self._single is None or self._ended:
            self._single, self._ended = self.rows(), False
        found: list[Any] = []
        while len(found) < count:
            try:
                found.append(next(self._single))
            except StopIteration:
                self._ended = True
                break
        return found

    def should_stop(self) -> bool:
        """Whether `next_batch` has reached the end of the epoch."""
        return self._ended

    def terminate(self) -> None:
        """Need no more rows of this epoch: the feeders end."""
        if self._single is not None:
            self._single.close()  # type: ignore[attr-defined] # as above
        self._ended = True


def unpacked(batch: pa.RecordBatch) -> Iterator[Any]:
    """The rows of a batch. Raises StreamError for a row that cannot be unpickled here."""
    if batch.schema.names != [PICKLED]:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
        return
    for value in batch.column(0):
        try:
            found = pickle.loads(value.as_buffer())
        except Exception as error:
            raise StreamError(f"rows of an RDD cannot be unpickled in the member: {error}") from error
        yield from found


class _Rows:
    """Rows that wait, in the order of their arrival."""

    def __init__(self) -> None:
        self._parts: deque[pa.RecordBatch] = deque()
        self.count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._parts.append(batch)
        self.count += batch.num_rows

    def take(self, count: int) -> pa.RecordBatch:
        """The first `count` rows, which must be there."""
        found: list[pa.RecordBatch] = []
        wanted = count
        while wanted:
            part = self._parts.popleft()
            if part.num_rows > wanted:
                self._parts.appendleft(part.slice(wanted))
                part = part.slice(0, wanted)
            found.append(part)
            wanted -= part.num_rows
        self.count -= count
        return found[0] if len(found) == 1 else pa.concat_batches(found)
