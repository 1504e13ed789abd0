"""The trainer's side of a stream: its rows as batches of Arrow, whole steps for a gang, or a few rows at a time."""

from collections import deque
from collections.abc import Callable, Iterator

import pyarrow as pa

from sparktrain.training.data.stream.epoch_reader import EpochReader, Phase, RowWait
from sparktrain.training.data.stream.feed_queue import FeedQueue
from sparktrain.training.data.stream.row_reader import RowReader

MOST_STEPS_ROWS = 4096
"""About the most rows that one agreement of a gang covers."""

Agree = Callable[[int], int]
"""The least of the numbers that the members of the gang pass. Each calls it equally often; it blocks until all do."""


def alone(steps: int) -> int:
    """The agreement of a gang of one."""
    return steps


class FeedReader(RowReader):
    """The rows of one stream in this member. One thread uses it at a time.

    Each call of `steps` reads the next epoch, for which the driver runs the feeding job again; so does
    `next_batch` after the end of one.
    """

    def __init__(self, queue: FeedQueue, report: Callable[[int, Phase], None], wait: RowWait) -> None:
        """`report` informs the driver about this member and an epoch."""
        super().__init__(EpochReader(queue, report, wait), queue.answers)

    def close(self) -> None:
        """Need no more rows of the epoch that is read, if any: its feeders end."""
        self.epochs.finish(self.epochs.epoch)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        epoch = self.epochs.start()
        try:
            while (batch := self.epochs.take()) is not None:
                yield batch
        finally:
            self.epochs.finish(epoch)

    def steps(self, batch_size: int, agree: Agree) -> Iterator[pa.RecordBatch]:
        """Batches of a multiple of `batch_size` rows, as many steps on each member of the gang.

        All members stop when the first one lacks a full step; what they have beyond that is dropped. Blocks for rows
        without limit. When the caller stops early, the feeders end. Raises StreamError when the feeding job failed.
        """
        max_steps = max(1, MOST_STEPS_ROWS // batch_size)
        waiting = _Rows()
        source = self._batches()
        try:
            while True:
                self._fill(waiting, source, batch_size, max_steps)
                with self.epochs.wait.waiting():  # another member may wait for rows
                    # One agreement for many steps: for each it would cost a collective.
                    steps = agree(min(max_steps, waiting.count // batch_size))
                if not steps:
                    break
                yield waiting.take(steps * batch_size)
                self.epochs.use(self.epochs.batches_taken - waiting.parts)
        finally:
            source.close()  # type: ignore[attr-defined] # it is a generator

    def _fill(self, waiting: "_Rows", source: Iterator[pa.RecordBatch], batch_size: int, most: int) -> None:
        """Wait for one full step; add what has arrived beyond it without waiting."""
        while waiting.count < batch_size or (waiting.count < most * batch_size and self.epochs.waiting):
            if (batch := next(source, None)) is None:
                return
            waiting.add(batch)


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
