"""The trainer's side of a stream: its rows as batches of Arrow, whole steps for a gang, or a few rows at a time."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from sparktrain.training.data.stream.epoch_reader import EpochReader, Phase
from sparktrain.training.data.stream.feed_queue import FeedQueue
from sparktrain.training.data.stream.row_reader import RowReader
from sparktrain.training.data.stream.row_wait import RowWait

MOST_STEPS_ROWS = 4096
"""About the most rows that one agreement of a gang covers."""

Agree = Callable[[int], int]
"""The least of the numbers that the members of the gang pass. Each calls it equally often; it blocks until all do."""


def alone(steps: int) -> int:
    """The agreement of a gang of one."""
    return steps


class FeedReader:
    """The rows of one stream in this member. One thread uses it at a time.

    Each call of `batches` or `steps` reads the next epoch, for which the driver runs the feeding job again; so does
    `next_batch` after the end of one.
    """

    def __init__(self, queue: FeedQueue, report: Callable[[int, Phase], None], wait: RowWait) -> None:
        """`report` informs the driver about this member and an epoch."""
        self._epochs = EpochReader(queue, report, wait)
        self._rows = RowReader(self._epochs, queue.answers)

    @property
    def epoch(self) -> int:
        """The epoch that is read, from 1; 0 before the first."""
        return self._epochs.epoch

    @property
    def num_rows(self) -> int:
        """Rows that were taken in this epoch."""
        return self._epochs.num_rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches of the next epoch, as feeders cut them. Blocks for rows without limit.

        When the caller stops early, the feeders end. Raises StreamError when the feeding job failed.
        """
        source = self._epoch()
        try:
            for batch in source:
                yield batch
                self._epochs.use(self._epochs.batches_taken)
        finally:
            source.close()  # type: ignore[attr-defined] # it is a generator

    def peek(self) -> pa.RecordBatch | None:
        """The first batch of the next epoch, which stays in it; None where it has no rows. Blocks for rows."""
        return self._epochs.peek()

    def close(self) -> None:
        """Need no more rows of the epoch that is read, if any: its feeders end."""
        self._epochs.finish(self.epoch)

    def _epoch(self) -> Iterator[pa.RecordBatch]:
        epoch = self._epochs.start()
        try:
            while (batch := self._epochs.take()) is not None:
                yield batch
        finally:
            self._epochs.finish(epoch)

    def steps(self, batch_size: int, agree: Agree = alone, *, partial: bool = False) -> Iterator[pa.RecordBatch]:
        """Batches of a multiple of `batch_size` rows, as many steps on each member of the gang.

        All members stop when the first one lacks a full step; what they have beyond that is dropped. `partial` adds the
        last rows, for a gang of one. Raises StreamError.
        """
        max_steps = max(1, MOST_STEPS_ROWS // batch_size)
        waiting = _Rows()
        source = self._epoch()
        try:
            while True:
                self._fill(waiting, source, batch_size, max_steps)
                with self._epochs.wait.waiting():  # another member may wait for rows
                    # One agreement for many steps: for each it would cost a collective.
                    steps = agree(min(max_steps, waiting.count // batch_size))
                if not steps:
                    break
                yield waiting.take(steps * batch_size)
                self._epochs.use(self._epochs.batches_taken - waiting.parts)
            if partial and waiting.count:
                yield waiting.take(waiting.count)
        finally:
            source.close()  # type: ignore[attr-defined] # as above

    def _fill(self, waiting: "_Rows", source: Iterator[pa.RecordBatch], batch_size: int, most: int) -> None:
        """Wait for one full step; add what has arrived beyond it without waiting."""
        while waiting.count < batch_size or (waiting.count < most * batch_size and self._epochs.waiting):
            if (batch := next(source, None)) is None:
                return
            waiting.add(batch)

    # ---- a few rows at a time

    def next_batch(self, count: int, *, whole: bool = False) -> list[Any]:
        """The next `count` rows, fewer only at the end of the epoch; then `should_stop` is True. Blocks for rows.

        Python objects of an RDD, or tuples of the values of a DataFrame's columns. `whole`: fewer at the end of a
        partition, too. Rows that wait for results come from one partition always. Raises StreamError.
        """
        return self._rows.next_batch(count, whole)

    def next_arrow(self, count: int) -> pa.RecordBatch | None:
        """The next `count` rows of a DataFrame, fewer at the end of the epoch; None when there are none any more.

        Blocks for rows. Raises StreamError, also for rows of an RDD.
        """
        return self._rows.next_arrow(count)

    def answer(self, results: Iterable[Any]) -> None:
        """The results for the rows of the last `next_batch`, one for each, in order. Raises StreamError."""
        self._rows.answer(results)

    def should_stop(self) -> bool:
        """Whether `next_batch` has reached the end of the epoch."""
        return self._rows.ended

    def terminate(self, ask: bool = False) -> None:
        """Need no more rows of this epoch: the feeders end, and tasks that wait for results fail.

        `ask`: inform the driver even when nothing was read yet, for it waits until every member has asked for rows.
        """
        self._rows.terminate(ask)

    def wait_until_over(self) -> None:
        """Block without limit until the driver has ended the epoch that was read, if any. Takes no rows."""
        self._epochs.wait_until_over()


class _Rows:
    """Rows that wait, in the order of their arrival."""

    def __init__(self) -> None:
        self._parts: deque[pa.RecordBatch] = deque()
        self.count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._parts.append(batch)
        self.count += batch.num_rows

    @property
    def parts(self) -> int:
        """The number of batches that the rows come from."""
        return len(self._parts)

    def take(self, count: int) -> pa.RecordBatch:
        """The first `count` rows, which must be there."""
        batches: list[pa.RecordBatch] = []
        remaining = count
        while remaining:
            part = self._parts.popleft()
            if part.num_rows > remaining:
                self._parts.appendleft(part.slice(remaining))
                part = part.slice(0, remaining)
            batches.append(part)
            remaining -= part.num_rows
        self.count -= count
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
