"""The Spark tasks that feed members: each sends the rows of its partition, and returns how many."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import google_crc32c
import pyarrow as pa

from sparktrain.base.backoff import Backoff, RetryBudget
from sparktrain.base.clock import pause
from sparktrain.cluster.dataframes.feed_exchange import FeedExchange, UnreachableMemberError
from sparktrain.datasets.group_file import cut
from sparktrain.datasets.values import check_values, plain_batch
from sparktrain.errors import DataError, StreamError
from sparktrain.protocol.feed_messages import (
    Busy,
    Chunk,
    Delivered,
    Enough,
    FeedAnswer,
    FeedTicket,
    OpenFeed,
    PartitionEnd,
    SendFrom,
)
from sparktrain.protocol.row_pickles import pickled

FEED_SCHEMA = "partition int, rows long, batches long, enough boolean"
"""The schema of one row for each task: what the member has of its partition, and whether it wanted no more."""

MOST_ROWS = 4096
MOST_BYTES = 2 * 2**20
"""The most in one batch, whichever comes first."""
BUSY_S = (0.2, 5.0)
"""The first and the longest pause before a feeder asks a busy member once more."""


class TaskAttempt(NamedTuple):
    """Which task this is, as Spark counts."""

    partition: int
    attempt: int
    task: int


class Fed(NamedTuple):
    """What the member has of a partition."""

    rows: int
    batches: int
    enough: bool


def feed_task(batches: Iterator[pa.RecordBatch], ticket: FeedTicket) -> Iterator[pa.RecordBatch]:
    """Feed the partition of this task; for `mapInArrow`. Raises StreamError and DataError, which fail the task."""
    attempt = this_task()
    fed = feed(_checked(batches, ticket, attempt.partition), ticket, attempt)
    yield pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([attempt.partition], pa.int32()),
            "rows": pa.array([fed.rows], pa.int64()),
            "batches": pa.array([fed.batches], pa.int64()),
            "enough": pa.array([fed.enough]),
        }
    )


def _checked(batches: Iterator[pa.RecordBatch], ticket: FeedTicket, partition: int) -> Iterator[pa.RecordBatch]:
    """The columns of a DataFrame in their plain form. Raises DataError for nulls, and values without a rule."""
    subject = f"data[{ticket.feed!r}], partition {partition}"
    for batch in batches:
        if batch.num_rows:
            plain = plain_batch(batch, ticket.columns, {}, subject) if ticket.columns else batch
            check_values(plain, ticket.columns, subject)
            yield plain


def feed_rdd_task(rows: Iterator[Any], ticket: FeedTicket) -> Iterator[tuple[int, int, int, bool]]:
    """As `feed_task` for the rows of an RDD, which are any Python objects; for `mapPartitions`."""
    attempt = this_task()
    yield (attempt.partition, *feed(pickled(rows), ticket, attempt))


def feed(batches: Iterator[pa.RecordBatch], ticket: FeedTicket, attempt: TaskAttempt) -> Fed:
    """Send the rows of a partition to its member; returns when the member has all, or wants no more.

    A member that is slow is waited for without limit; one that is gone is an error at once, and one that is silent
    after 15 s. Rows that the member has from an earlier attempt are skipped. Raises StreamError, and DataError where
    they differ from those.
    """
    with closing(_Opened(ticket, attempt)) as opened:
        match opened.answer:
            case SendFrom() as resume:
                return _send(opened.exchange, _after(resume, _cut(batches), attempt.partition), resume)
            case Delivered(rows=rows, batches=count):
                return Fed(rows, count, False)
            case _:
                return Fed(0, 0, True)


class _Opened:
    """An exchange that its member has answered."""

    def __init__(self, ticket: FeedTicket, attempt: TaskAttempt) -> None:
        address = ticket.addresses[attempt.partition % len(ticket.addresses)]
        request = OpenFeed(
            address.server,
            ticket.feed,
            ticket.epoch,
            ticket.micro_batch,
            attempt.partition,
            attempt.attempt,
            attempt.task,
            until_taken=ticket.until_taken,
        )
        budget = RetryBudget(ticket.connect_s, Backoff(0.2, 2.0, (0.5, 1.0)))
        busy = Backoff(*BUSY_S, (0.5, 1.0))
        while True:
            try:
                self.exchange = FeedExchange(ticket, address, request)
                self.answer = _answer_of(self.exchange)
            except UnreachableMemberError:
                if not budget.wait():
                    raise
                continue
            if not isinstance(self.answer, Busy):
                return
            self.exchange.close()
            pause(busy.next_s())

    def close(self) -> None:
        self.exchange.close()


def _answer_of(exchange: FeedExchange) -> FeedAnswer:
    """The member's answer; closes the exchange without one."""
    try:
        return exchange.ask()
    except BaseException:
        exchange.close()
        raise


def _send(exchange: FeedExchange, batches: Iterator[tuple[pa.RecordBatch, int]], resume: SendFrom) -> Fed:
    rows = resume.rows
    count = resume.batches
    for batch, checksum in batches:
        if not exchange.send(Chunk(rows, checksum), batch):
            return Fed(rows, count, True)
        rows = rows + batch.num_rows
        count = count + 1
    if not exchange.send(PartitionEnd(rows)):
        return Fed(rows, count, True)
    match exchange.answer():
        case Delivered(rows=had, batches=times):
            return Fed(had, times, False)
        case Enough():
            return Fed(rows, count, True)
        case other:
            raise StreamError(f"the member answered the end of a partition with {type(other).__name__}")


def _after(resume: SendFrom, batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The batches after those that the member has, each with the checksum of all up to it."""
    checksum = rows = count = 0
    for batch in batches:
        if (new_rows := rows + batch.num_rows - resume.rows) <= 0:  # the member has it
            checksum = _extended(checksum, batch)
            rows = rows + batch.num_rows
            count = count + 1
            if new_rows == 0:
                _check_same(resume, count, checksum, partition)
            continue
        if new_rows < batch.num_rows:  # the batches are cut in other places than those of the earlier attempt
            batch = batch.slice(batch.num_rows - new_rows)
            checksum = resume.checksum
        checksum = _extended(checksum, batch)
        rows = max(rows, resume.rows) + batch.num_rows
        yield batch, checksum
    if rows < resume.rows:
        raise DataError(
            f"partition {partition} gave {rows} rows, and at least {resume.rows} when it was computed before: {_ADVICE}"
        )


def _check_same(resume: SendFrom, count: int, checksum: int, partition: int) -> None:
    """Check that the skipped rows are those that the member has. Nothing is known where they were cut otherwise."""
    if count == resume.batches and checksum != resume.checksum:
        raise DataError(
            f"partition {partition} gave other rows, or another order, than when it was computed before: {_ADVICE}"
        )


_ADVICE = (
    "a stream wants a partition to give the same rows again; sort within partitions, write the data first "
    "(df.write.parquet), or pass the DataFrame itself as data={...}, which is written before training starts"
)


def _extended(checksum: int, batch: pa.RecordBatch) -> int:
    return int(google_crc32c.extend(checksum, bytes(batch.serialize())))


def _cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in batches that suit the member's queue. Where it cuts depends on Spark's batches alone."""
    for batch in batches:
        yield from cut(batch, MOST_ROWS, MOST_BYTES)


def this_task() -> TaskAttempt:
    """The task of Spark that calls this. Raises StreamError outside of one."""
    from pyspark import TaskContext  # the tests feed without Spark

    context = TaskContext.get()
    if context is None:
        raise StreamError("a feeder runs in a task of Spark only")
    return TaskAttempt(context.partitionId(), context.attemptNumber(), context.taskAttemptId())
