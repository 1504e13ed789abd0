"""The rows that wait for results, by the exchange that brought them, and the results on their way back.

Nothing is kept between exchanges: rows of one that has ended are dropped, and results for them go nowhere. A batch for
the training function has rows of one exchange alone. No socket and no Flight is in it.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from sparktrain.base.clock import Clock
from sparktrain.errors import StreamError
from sparktrain.protocol.feed_messages import FEED_LEASE_S, Enough, FeedRefused, LastAnswer, Results
from sparktrain.protocol.row_pickles import batch_of, pickle_of, unpickled
from sparktrain.training.notices import notice

MOST_BATCHES = 8
"""The most of one exchange that wait."""
MOST_BYTES = 64 * 2**20
"""The most rows of all exchanges that wait, and the most results of one; each may always have one batch."""
MOST_REASON = 500
"""Characters of an error in a refusal: the status of a call has room for some thousand bytes."""
LOOK_S = 1.0
"""How often an exchange that waits for room checks whether its peer is gone. All else wakes it."""


@dataclass(eq=False)
class _RowRequest:
    """A batch that a feeder sent, and the results for its first rows."""

    first_row: int
    rows: int
    answered: int = 0
    pickles: list[bytes] = field(default_factory=list)


class Answer(NamedTuple):
    """The results for one batch of a feeder."""

    message: Results
    batch: pa.RecordBatch


class AnsweredExchange:
    """An exchange as the queue sees it. The lock of the queue protects it."""

    def __init__(self, partition: int, is_closed: Callable[[], bool], peer: str, lock: threading.Lock) -> None:
        self.partition = partition
        self.is_closed = is_closed
        """Whether the peer has closed the exchange."""
        self.peer = peer
        self.refusal = ""
        """Why its task must fail; empty while all is well."""
        self.heard_at = 0.0
        self.listening = True
        """Its thread waits for the peer. While it waits for room instead, silence means nothing."""
        self.writing_since: float | None = None
        self.lost = False
        """Its peer is gone, or silent: no rows of it are handed out, and no results are sent."""
        self.ended = False
        """Its feeder has sent the last row of the partition."""
        self.next_row: int | None = None
        """The first row of the batch that follows; None before the first one, which may have any."""
        self.waiting: deque[pa.RecordBatch] = deque()
        self.available = 0
        """Rows that were received and not handed out."""
        self.opened: list[Any] = []
        """The rows of the batch that is being handed out, from `place` on; only the training thread uses them."""
        self.place = 0
        self.requests: deque[_RowRequest] = deque()
        self.answers: deque[Answer] = deque()
        self.answer_bytes = 0
        self.room = threading.Condition(lock)
        self.answered = threading.Condition(lock)

    def lose(self) -> None:
        """Drop what is here of it, and wake its threads."""
        self.lost = True
        self.waiting.clear()
        self.answers.clear()
        self.available = self.answer_bytes = 0
        self.room.notify()
        self.answered.notify()


class AnswerQueue:
    """The answered exchanges of one feed. Their threads and the training thread call it."""

    def __init__(
        self,
        name: str,
        lock: threading.Lock,
        rows: threading.Condition,
        clock: Clock,
        lease_s: float = FEED_LEASE_S,
    ) -> None:
        """`lock` is that of the feed's queue, and the training thread waits on `rows`, which has the same lock."""
        self._name = name
        self._lock = lock
        self._rows = rows
        self._clock = clock
        self._lease_s = lease_s
        self._exchanges: list[AnsweredExchange] = []
        """In the order in which they are served."""
        self._bytes = 0
        self._open = False
        self._refusal = ""
        self._handed: tuple[AnsweredExchange, int] | None = None
        """The exchange and the number of the rows for which results are due."""
        self._warned = False

    # ---- the queue of the feed, which holds the lock

    def open(self) -> None:
        """Accept rows."""
        self._open = True
        self._refusal = ""

    def close(self, refusal: str = "") -> None:
        """Accept no rows any more. `refusal` is why tasks must fail; without it they look for another gang."""
        self._open = False
        self._refusal = self._refusal or refusal
        for exchange in list(self._exchanges):
            exchange.refusal = refusal
            self._lose(exchange)

    def ready(self, count: int) -> AnsweredExchange | None:
        """The exchange that has `count` rows, or all that it can have; None while there is none."""
        for exchange in self._exchanges:
            # An exchange with a thread that waits for room sends no more before rows are taken: what is here must do.
            full = exchange.ended or (not exchange.listening and bool(exchange.waiting))
            if exchange.available >= count or (full and exchange.available):
                return exchange
        return None

    def look(self) -> None:
        """Give up exchanges with silent peers. Does not block."""
        now = self._clock.now()
        for call in list(self._exchanges):
            heard_at = call.heard_at if call.listening else now
            written_at = now if call.writing_since is None else call.writing_since
            if now - min(heard_at, written_at) > self._lease_s:
                self._lose(call)
                notice(
                    f"stream {self._name!r}: the task of partition {call.partition} at {call.peer}, which waits for "
                    f"results, gave no heartbeat for {self._lease_s:g} s: its process is stopped, or its network is "
                    "down; it asks again when it continues"
                )

    # ---- exchanges

    def enter(self, partition: int, is_closed: Callable[[], bool], peer: str) -> AnsweredExchange:
        """An exchange starts; its thread calls `leave` at the end."""
        with self._lock:
            exchange = AnsweredExchange(partition, is_closed, peer, self._lock)
            self.heard(exchange)
            if self._open:
                self._exchanges.append(exchange)
            else:
                exchange.lost = True
                exchange.refusal = self._refusal
            return exchange

    def leave(self, exchange: AnsweredExchange) -> None:
        """The exchange has ended: its rows are dropped."""
        with self._lock:
            self._lose(exchange)

    def last_answer(self, exchange: AnsweredExchange) -> LastAnswer | None:
        """What ends the exchange now; None while it may continue."""
        with self._lock:
            if exchange.refusal:
                return FeedRefused(exchange.refusal)
            return Enough() if exchange.lost else None

    def heard(self, exchange: AnsweredExchange) -> None:
        """The peer has sent something."""
        exchange.heard_at = self._clock.now()

    def put(self, exchange: AnsweredExchange, batch: pa.RecordBatch, first_row: int, rows: int) -> None:
        """Append a batch of the partition; waits for room. It is dropped when `last_answer` ends the exchange.

        Raises StreamError for a batch that does not follow the last one, and when the peer is gone.
        """
        with self._lock:
            if exchange.next_row not in (None, first_row):
                raise StreamError(
                    f"stream {self._name!r}: partition {exchange.partition} continues at row {first_row}, and "
                    f"{exchange.next_row} is expected"
                )
            try:
                while not exchange.lost and not self._fits(exchange, batch.nbytes):
                    if exchange.is_closed():
                        raise StreamError(f"stream {self._name!r}: the task of partition {exchange.partition} is gone")
                    exchange.listening = False
                    self._rows.notify()
                    exchange.room.wait(LOOK_S)
            finally:
                exchange.listening = True
                exchange.heard_at = self._clock.now()
            if not exchange.lost:
                exchange.next_row = first_row + rows
                exchange.requests.append(_RowRequest(first_row, rows))
                exchange.waiting.append(batch)
                exchange.available += rows
                self._bytes += batch.nbytes
                self._rows.notify()

    def end(self, exchange: AnsweredExchange) -> None:
        """The partition has no more rows."""
        with self._lock:
            exchange.ended = True
            self._rows.notify()

    def next_answer(self, exchange: AnsweredExchange) -> Answer | None:
        """The next results to send, None when none will come. Blocks; for the thread that sends, which comes back."""
        with self._lock:
            exchange.writing_since = None
            while not exchange.answers and not exchange.lost:
                exchange.answered.wait()
            if exchange.lost:
                return None
            answer = exchange.answers.popleft()
            exchange.answer_bytes -= answer.batch.nbytes
            exchange.room.notify()
            exchange.writing_since = self._clock.now()
            return answer

    # ---- the training thread

    def rows_of(self, exchange: AnsweredExchange, count: int) -> list[Any]:
        """The next `count` rows of an exchange, fewer at the end of its partition; none when its peer is gone.

        Blocks as long as the feeder may send rows. Rows that cannot be unpickled here end the exchange, and fail its
        task.
        """
        rows: list[Any] = []
        while len(rows) < count:
            if exchange.place >= len(exchange.opened) and not self._open_next(exchange):
                break
            part = exchange.opened[exchange.place : exchange.place + count - len(rows)]
            exchange.place += len(part)
            rows += part
        with self._lock:
            if exchange.lost:
                return []
            exchange.available -= len(rows)
            if rows:
                self._handed = exchange, len(rows)
            return rows

    def check_answered(self) -> None:
        """Raises StreamError when results are due."""
        if self._handed is not None:
            exchange, rows = self._handed
            raise StreamError(
                f"next_batch() was called before batch_results() got the results of {rows} rows of partition "
                f"{exchange.partition}: cluster.inference() wants one result for each row; answer each batch first"
            )

    def answer(self, results: Iterable[Any]) -> None:
        """The results for the rows that were handed out last, in their order. Does not wait for their task.

        Raises StreamError for another number of results than rows, and for results that cannot be pickled.
        """
        outputs = list(results)
        if self._handed is None:
            return self._ignore(len(outputs))
        exchange, rows = self._handed
        if len(outputs) != rows:
            raise StreamError(
                f"batch_results() got {len(outputs)} results for {rows} rows: pass one result for each row of the last "
                "next_batch(), in the same order"
            )
        self._handed = None
        at = 0
        while at < rows and not exchange.lost:
            request = exchange.requests[0]
            part = outputs[at : at + request.rows - request.answered]
            at += len(part)
            request.answered += len(part)
            request.pickles.append(_result_pickle(part))
            if request.answered == request.rows:
                answer = Answer(Results(request.first_row, request.rows), batch_of(request.pickles))
                with self._lock:
                    exchange.requests.popleft()
                    self._send(exchange, answer)

    def _ignore(self, results: int) -> None:
        if results and not self._warned:
            self._warned = True
            notice(
                f"stream {self._name!r}: batch_results() got {results} results, and no rows of cluster.inference() "
                "wait for results: they are dropped"
            )

    def _open_next(self, exchange: AnsweredExchange) -> bool:
        """Unpickle the next batch of an exchange; False when there is none any more."""
        with self._lock:
            while not exchange.waiting:
                if exchange.ended or exchange.lost:
                    return False
                self._rows.wait()
            batch = exchange.waiting.popleft()
            self._bytes -= batch.nbytes
            # All of them, because the bytes that may wait are those of all exchanges together.
            for sender in self._exchanges:
                if not sender.listening:
                    sender.room.notify()
        try:
            exchange.opened = unpickled(batch, "rows of an RDD")
            exchange.place = 0
        except StreamError as error:
            with self._lock:
                exchange.refusal = f"{str(error)[:MOST_REASON]}; the member lacks a module that the task has"
                self._lose(exchange)
            return False
        return True

    # ---- internal; the caller holds the lock

    def _fits(self, exchange: AnsweredExchange, size: int) -> bool:
        if exchange.answer_bytes > MOST_BYTES:
            return False
        return not exchange.waiting or (len(exchange.waiting) < MOST_BATCHES and self._bytes + size <= MOST_BYTES)

    def _send(self, exchange: AnsweredExchange, answer: Answer) -> None:
        if not exchange.lost:
            exchange.answers.append(answer)
            exchange.answer_bytes += answer.batch.nbytes
            exchange.answered.notify()

    def _lose(self, exchange: AnsweredExchange) -> None:
        self._bytes -= sum(batch.nbytes for batch in exchange.waiting)
        exchange.lose()
        if exchange in self._exchanges:
            self._exchanges.remove(exchange)
        self._rows.notify()


def _result_pickle(results: list[Any]) -> bytes:
    try:
        return pickle_of(results)
    except Exception as error:
        raise StreamError(
            f"a result of batch_results() cannot be pickled: {error}; pass plain values, such as numbers or arrays"
        ) from error
