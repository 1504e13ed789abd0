"""The Spark task of `cluster.inference`: sends the rows of its partition to a member, and yields a result for each.

The task keeps the rows that have no results yet. When its member is gone, it sends them to the member's successor, and
never yields a result twice; so each row has exactly one, whatever happens to members. Two threads: that of the task
sends and yields, and that of the exchange receives.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from typing import Any, NamedTuple

import pyarrow as pa
from msgspec.structs import replace

from sparktrain.base.backoff import Backoff
from sparktrain.base.clock import SystemClock, pause
from sparktrain.cluster.dataframes.feed_exchange import Answered, FeedExchange
from sparktrain.cluster.dataframes.feeder import BUSY_S, TaskAttempt, this_task
from sparktrain.errors import DataError, ProtocolError, SpecError, StreamError
from sparktrain.protocol.feed_directory import newest_addresses
from sparktrain.protocol.feed_messages import (
    AskedRows,
    Busy,
    FeedAddresses,
    FeedDirectory,
    FeedTicket,
    OpenFeed,
    PartitionEnd,
    SendFrom,
)
from sparktrain.protocol.row_pickles import counted_pickles, unpickled
from sparktrain.store.url import open_store

_RETRY_S = (0.2, 2.0)
"""The first and the longest pause before a task looks for its member once more."""
_LOOK_S = 10.0
"""How long one look into the directory may take."""


def infer_rdd_task(rows: Iterator[Any], ticket: FeedTicket, directory: FeedDirectory) -> Iterator[Any]:
    """The results for the rows of this task's partition, in their order; for `mapPartitions`.

    A partition without rows asks no member. Blocks as long as the member lives, however slow it is. Raises StreamError
    when the member refuses rows, or is gone and no newer generation of its gang has opened the feed within
    `directory.wait_s`; DataError for a row that cannot be pickled, and a result that cannot be unpickled here.
    """
    return infer(rows, ticket, directory, this_task())


def infer(rows: Iterable[Any], ticket: FeedTicket, directory: FeedDirectory, attempt: TaskAttempt) -> Iterator[Any]:
    """As `infer_rdd_task`, for any attempt of a task."""
    with closing(_Inference(ticket, directory, attempt)) as inference:
        yield from inference.results(rows)


class _Sent(NamedTuple):
    """A batch of rows that has no results yet."""

    message: AskedRows
    batch: pa.RecordBatch


class _Inference:
    """One attempt of a task."""

    def __init__(self, ticket: FeedTicket, directory: FeedDirectory, attempt: TaskAttempt) -> None:
        self._ticket = ticket
        self._attempt = attempt
        self._search = _MemberSearch(ticket, directory, attempt.partition)
        self._exchange: FeedExchange | None = None
        self._unanswered: deque[_Sent] = deque()
        self._ready: deque[list[Any]] = deque()
        self._rows = 0
        self._complete = False
        """All rows have been sent at least once."""

    def results(self, rows: Iterable[Any]) -> Iterator[Any]:
        """Yield the result of each row, in order. Raises as `infer_rdd_task`."""
        for batch, count in counted_pickles(rows):
            self._unanswered.append(_Sent(AskedRows(self._rows, count), batch))
            self._rows += count
            if self._exchange is None:
                self._connect()
            else:
                self._send_last()
            yield from self._arrived(wait=False)
        self._complete = True
        if self._unanswered:
            self._send_last()
        while self._unanswered:
            yield from self._arrived(wait=True)

    def close(self) -> None:
        """End the exchange, if there is one."""
        if self._exchange is not None:
            self._exchange.close()

    # ---- internal

    def _send_last(self) -> None:
        """Send what has become known last: a batch, or the end."""
        try:
            self._send([] if self._complete else [self._unanswered[-1]])
        except StreamError as error:
            self._reconnect(error)

    def _send(self, batches: Iterable[_Sent]) -> None:
        exchange = self._opened()
        sent = all(exchange.send(sent_batch.message, sent_batch.batch) for sent_batch in batches)
        if not sent or (self._complete and not exchange.send(PartitionEnd(self._rows))):
            raise StreamError(_NO_MORE)

    def _arrived(self, wait: bool) -> Iterator[Any]:
        """The results that have come; `wait`: at least one batch of them."""
        try:
            if self._unanswered:
                self._receive(wait and not self._ready)
        except StreamError as error:
            self._reconnect(error)
        while self._ready:
            yield from self._ready.popleft()

    def _receive(self, wait: bool) -> None:
        exchange = self._opened()
        while (answered := exchange.results(wait)) is not None:
            self._accept(answered)
            wait = False
        if exchange.enough:
            raise StreamError(_NO_MORE)

    def _accept(self, answered: Answered) -> None:
        message = answered.message
        expected = self._unanswered[0].message if self._unanswered else None
        if expected is None or (message.first_row, message.rows) != (expected.first_row, expected.rows):
            raise ProtocolError(f"the member sent results for {message}, and those for {expected} are due")
        try:
            values = unpickled(answered.batch, "results of batch_results()")
        except StreamError as error:
            raise DataError(f"{error}; the task lacks a module that the member has: return plain values") from error
        self._unanswered.popleft()
        self._ready.append(values)
        self._search.progress()

    def _opened(self) -> FeedExchange:
        """The exchange, once the member has accepted it. Blocks while the member has too many. Raises StreamError."""
        busy = Backoff(*BUSY_S, (0.5, 1.0))
        while self._exchange is None:
            # One exchange for each attempt. In queues that attempts share, results of a dead attempt stay: 240 of 400
            # rows got those of other rows.
            self._exchange = FeedExchange(self._ticket, self._search.address, self._open_feed())
            answer = self._exchange.ask()
            if isinstance(answer, Busy):
                self.close()
                self._exchange = None
                pause(busy.next_s())
            elif not isinstance(answer, SendFrom):
                raise StreamError(_NO_MORE)
        return self._exchange

    def _open_feed(self) -> OpenFeed:
        attempt = self._attempt
        ticket = self._ticket
        server = self._search.address.server
        return OpenFeed(
            server, ticket.feed, ticket.epoch, 0, attempt.partition, attempt.attempt, attempt.task, answers=True
        )

    def _connect(self) -> None:
        """Send all rows without results to the member, or its successor. Blocks. Raises StreamError."""
        while True:
            try:
                return self._send(self._unanswered)
            except StreamError as error:
                self._look_elsewhere(error)

    def _reconnect(self, error: StreamError) -> None:
        self._look_elsewhere(error)
        if self._unanswered:
            self._connect()

    def _look_elsewhere(self, error: StreamError) -> None:
        """After `error`: close the exchange, and find where to continue. Raises StreamError when that is nowhere."""
        exchange = self._exchange
        self._exchange = None
        if exchange is not None:
            with closing(exchange):
                if exchange.refused:
                    raise error
                with suppress(StreamError):  # the end of the exchange, as known
                    while (answered := exchange.results(False)) is not None:
                        self._accept(answered)
        self._search.again(error)


_NO_MORE = "the member takes no more rows: it ends, or another process listens at its address"


class _MemberSearch:
    """Finds the member of one partition, over the generations of its gang."""

    def __init__(self, ticket: FeedTicket, directory: FeedDirectory, partition: int) -> None:
        self._feed = ticket.feed
        self._directory = directory
        self._partition = partition
        self._clock = SystemClock()
        self._generation = ""
        self._since: float | None = None
        self._backoff = Backoff(*_RETRY_S, (0.5, 1.0))
        self.address = ticket.addresses[partition % len(ticket.addresses)]
        """Where to try next."""

    def progress(self) -> None:
        """The member has answered."""
        self._since = None

    def again(self, error: StreamError) -> None:
        """After `error`: look for a newer address, or pause. Raises StreamError at the deadline."""
        if self._since is None:
            self._since = self._clock.now()
            self._backoff = Backoff(*_RETRY_S, (0.5, 1.0))
        newest_feed, problem = self._newest()
        if newest_feed is not None and newest_feed.ended:
            raise StreamError(f"stream {self._feed!r} takes no more rows: {newest_feed.ended}") from error
        if newest_feed is not None and newest_feed.addresses:
            address = newest_feed.addresses[self._partition % len(newest_feed.addresses)]
            if address != self.address:
                self.address = address
                self._generation = f" of generation {newest_feed.generation}"
                self._since = self._clock.now()
                return
        if self._clock.now() - self._since > self._directory.wait_s:
            raise StreamError(
                f"stream {self._feed!r}: the member at {self.address}{self._generation} gave no results for partition "
                f"{self._partition}, and no newer generation of its gang has opened the feed for "
                f"{self._directory.wait_s:g} s{problem} ({error}): the log of the run names why its members end"
            ) from error
        pause(self._backoff.next_s())

    def _newest(self) -> tuple[FeedAddresses | None, str]:
        """What the driver has published last, or why that is not known."""
        directory = self._directory
        try:
            return newest_addresses(open_store(replace(directory.store, timeout_s=_LOOK_S)), directory.path), ""
        except (OSError, ProtocolError, SpecError) as error:
            return None, f"; {directory.path} of the run's store cannot be read: {error}"
