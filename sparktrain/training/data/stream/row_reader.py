"""A few rows of a stream at a time, cut from its batches as slices of lists or of Arrow, never row by row."""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, TypeVar

import pyarrow as pa

from sparktrain.errors import StreamError
from sparktrain.protocol.feed_messages import PICKLED
from sparktrain.protocol.row_pickles import unpickled
from sparktrain.training.data.stream.answer_queue import AnsweredExchange, AnswerQueue
from sparktrain.training.data.stream.epoch_reader import EpochReader
from sparktrain.training.data.stream.feed_queue import Pause, TakenBatch
from sparktrain.training.data.stream.partition_use import PartitionKey

T = TypeVar("T")


class _Cursor:
    """One batch, and the place in it."""

    def __init__(self, taken_batch: TakenBatch) -> None:
        """Raises StreamError for rows that cannot be unpickled here."""
        self._batch = taken_batch.batch
        self.key = taken_batch.key
        self._rows = unpickled(taken_batch.batch, "rows of an RDD") if is_pickled(taken_batch.batch) else None
        self._length = taken_batch.batch.num_rows if self._rows is None else len(self._rows)
        self._place = 0

    @property
    def remaining(self) -> int:
        """Rows after the place."""
        return self._length - self._place

    def rows(self, count: int) -> list[Any]:
        """Up to `count` rows as Python objects, or as tuples of a DataFrame's values."""
        if self._rows is None:
            self._rows = list(zip(*(column.to_pylist() for column in self._batch.columns), strict=True))
        return self._rows[self._advance(count) : self._place]

    def arrow(self, count: int) -> pa.RecordBatch:
        """Up to `count` rows as Arrow. Raises StreamError for Python objects."""
        if is_pickled(self._batch):
            raise StreamError("next_arrow() reads a DataFrame's rows, and these are an RDD's objects: use next_batch()")
        start = self._advance(count)
        return self._batch.slice(start, self._place - start)

    def _advance(self, count: int) -> int:
        start = self._place
        self._place = min(self._place + count, self._length)
        return start


class RowReader:
    """The rows of one stream for a function that asks for some at a time. One thread uses it."""

    def __init__(self, epochs: EpochReader, answers: AnswerQueue) -> None:
        self.epochs = epochs
        self._answers = answers
        self._epoch: int | None = None
        self._cursor: _Cursor | None = None
        self.ended = False
        """It has reached the end of the epoch; the next call starts another one."""

    def next_batch(self, count: int, *, whole: bool = False) -> list[Any]:
        """The next `count` rows, fewer only at the end of the epoch, which then has `ended`. Blocks for rows.

        Python objects of an RDD, or tuples of the values of a DataFrame's columns. `whole`: fewer at the end of a
        partition, too. Rows that wait for results come from one partition always. Raises StreamError.
        """
        parts = self._gather(count, whole, _Cursor.rows, self._rows_to_answer)
        return parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))

    def next_arrow(self, count: int) -> pa.RecordBatch | None:
        """The next `count` rows of a DataFrame, fewer at the end of the epoch; None when there are none any more.

        Blocks for rows. Raises StreamError, also for rows of an RDD.
        """
        parts = self._gather(count, False, _Cursor.arrow, _no_arrow)
        return pa.concat_batches(parts) if len(parts) > 1 else next(iter(parts), None)

    def answer(self, results: Iterable[Any]) -> None:
        """The results for the rows of the last `next_batch`, one for each, in order. Raises StreamError."""
        self._answers.answer(results)

    def terminate(self, *, ask: bool = False) -> None:
        """Need no more rows of this epoch: the feeders end, and tasks that wait for results fail.

        `ask`: inform the driver even when nothing was read yet, for it waits until every member has asked for rows.
        """
        if ask and not self.epochs.epoch:
            self._epoch = self.epochs.start(answers=True)
        if self._epoch is not None:
            self.epochs.finish(
                self._epoch,
                "the training function has called terminate(), and needs no more rows: call it in training only",
            )
        self._end()

    # ---- internal

    def _gather(
        self,
        count: int,
        is_whole: bool,
        cut: Callable[[_Cursor, int], T],
        exchange_reader: Callable[[AnsweredExchange, int], T | None],
    ) -> list[T]:
        """The parts of the next `count` rows, each cut from one batch."""
        self._come_back()
        parts: list[T] = []
        held: PartitionKey | None = None
        while count:
            if self._cursor is None or not self._cursor.remaining:
                outcome = self.epochs.take_for(count, held, is_whole)
                if isinstance(outcome, AnsweredExchange):
                    if (part := exchange_reader(outcome, count)) is not None:
                        return [part]
                    continue
                if isinstance(outcome, Pause):
                    if outcome is Pause.END:
                        self._finish()
                    break
                self._cursor = _Cursor(outcome)
            if is_whole and held not in (None, self._cursor.key):
                break
            available = self._cursor.remaining
            held = self._cursor.key
            parts.append(cut(self._cursor, count))
            count -= available - self._cursor.remaining
        return parts

    def _come_back(self) -> None:
        """The function wants more: it has used what it got."""
        if self._epoch is None:
            self._epoch = self.epochs.start(answers=True)
            self.ended = False
        self._answers.check_answered()
        self.epochs.use(self.epochs.batches_taken - (self._cursor is not None and self._cursor.remaining > 0))

    def _rows_to_answer(self, exchange: AnsweredExchange, count: int) -> list[Any] | None:
        with self.epochs.wait.waiting():
            return self._answers.rows_of(exchange, count) or None

    def _finish(self) -> None:
        if self._epoch is not None:
            self.epochs.finish(self._epoch)
        self._end()

    def _end(self) -> None:
        self._epoch = self._cursor = None
        self.ended = True


def is_pickled(batch: pa.RecordBatch) -> bool:
    """Whether a batch holds Python objects of an RDD."""
    return bool(batch.schema.names == [PICKLED])


def _no_arrow(exchange: AnsweredExchange, count: int) -> pa.RecordBatch | None:
    raise StreamError("next_arrow() reads rows that need no results: use next_batch() for those of cluster.inference()")
