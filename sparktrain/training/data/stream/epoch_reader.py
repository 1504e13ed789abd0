"""One epoch of a stream after the other: asks the driver for each, and takes its batches from the queue."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import pyarrow as pa

from sparktrain.base.clock import Clock
from sparktrain.training.data.stream.answer_queue import AnsweredExchange
from sparktrain.training.data.stream.feed_queue import FeedQueue, Pause, TakenBatch
from sparktrain.training.data.stream.partition_use import PartitionKey

AWAIT_S = 1.0
"""A member that has waited so long informs its run."""


class RowWait:
    """The wait of one stream's reader. One thread waits at a time, and another one looks."""

    def __init__(self, inform: Callable[[bool], None], clock: Clock) -> None:
        """`inform` is called with True when a wait has become long, and with False at its end."""
        self._inform = inform
        self._clock = clock
        self._lock = threading.Lock()
        self._since: float | None = None
        self._informed = False

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside, the member waits for rows, or for other members of its gang that may."""
        with self._lock:
            self._since = self._clock.now()
        try:
            yield
        finally:
            with self._lock:
                self._since = None
                if self._informed:
                    self._informed = False
                    self._inform(False)

    def look(self) -> None:
        """Inform the run of a wait that has become long. Does not block; called several times a second."""
        with self._lock:
            if self._since is not None and not self._informed and self._clock.now() >= self._since + AWAIT_S:
                self._informed = True
                self._inform(True)


Phase = Literal["asked", "flowing", "enough"]
"""It wants the rows of an epoch, has the first ones, or needs no more."""


class EpochReader:
    """The epochs of one stream in this member. One thread uses it at a time."""

    def __init__(self, queue: FeedQueue, report: Callable[[int, Phase], None], wait: RowWait) -> None:
        """`report` informs the driver about this member and an epoch."""
        self._queue = queue
        self._report = report
        self.wait = wait
        self.epoch = 0
        """The epoch that is read, from 1; 0 before the first."""
        self.num_rows = 0
        """Rows of Arrow that were taken in this epoch."""
        self.batches_taken = 0
        """Batches that were taken in this epoch."""
        self._used = 0
        self._peeked: list[TakenBatch] | None = None
        """An epoch that `peek` has started, and its first batch, if it has one."""

    def start(self, answers: bool = False) -> int:
        """Start the next epoch, and ask for its rows; returns its number. Does not block."""
        if self._peeked is None:
            self._ask(answers)
        return self.epoch

    def peek(self) -> pa.RecordBatch | None:
        """The first batch of the next epoch, which stays in it; None where it has no rows. Blocks for rows."""
        if self._peeked is None:
            self._ask(False)
            first = self.take_for(1, None, False)
            self._peeked = [first] if isinstance(first, TakenBatch) else []
        return self._peeked[0].batch if self._peeked else None

    def take(self) -> pa.RecordBatch | None:
        """The next batch; None at the end of the epoch. Blocks for rows. Raises StreamError."""
        if (peeked := self._take_peeked()) is not None:
            return peeked.batch
        with self.wait.waiting():
            batch = self._queue.take()
        if batch is not None:
            self._count(batch)
        return batch

    def take_for(self, count: int, held: PartitionKey | None, is_whole: bool) -> TakenBatch | AnsweredExchange | Pause:
        """As the method of the queue."""
        if (peeked := self._take_peeked()) is not None:
            return peeked
        with self.wait.waiting():
            outcome = self._queue.take_for(count, held, is_whole)
        if isinstance(outcome, TakenBatch):
            self._count(outcome.batch)
        elif isinstance(outcome, AnsweredExchange):
            self._flow(1)
        return outcome

    def use(self, number: int) -> None:
        """The function has used the first `number` batches of this epoch: it has come back for more."""
        if number > self._used:
            self._used = number
            self._queue.used(number)

    @property
    def waiting(self) -> bool:
        """Whether `take` would return at once."""
        return self._queue.waiting

    def finish(self, epoch: int, refusal: str = "") -> None:
        """Need no more rows of the epoch: its feeders end. See `FeedQueue.stop`."""
        self._peeked = None
        if self._queue.stop(epoch, refusal):
            self._report(epoch, "enough")

    def wait_until_over(self) -> None:
        """Block until the driver has ended the epoch that was read, if any. Takes no rows."""
        if self.epoch:
            with self.wait.waiting():
                self._queue.wait_until_over()

    # ---- internal

    def _ask(self, answers: bool) -> None:
        self.epoch += 1
        self.num_rows = self.batches_taken = self._used = 0
        self._queue.start(self.epoch, answers)
        # Start the queue before the driver learns of it: feeders may connect at once.
        self._report(self.epoch, "asked")

    def _take_peeked(self) -> TakenBatch | None:
        peeked = self._peeked
        self._peeked = None
        return peeked[0] if peeked else None

    def _count(self, batch: pa.RecordBatch) -> None:
        self.batches_taken += 1
        self._flow(batch.num_rows)

    def _flow(self, rows: int) -> None:
        if not self.num_rows:
            self._report(self.epoch, "flowing")
        self.num_rows += rows
