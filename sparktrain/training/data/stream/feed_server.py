"""The Flight server of a member: feeders open one exchange for each attempt of a task, and bring rows of its feeds.

Only members import this module, at the first use of a stream: children of a process that has used Flight hang in it.
"""

import hmac
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pyarrow.flight as flight

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.base.threads import spawn
from sparktrain.errors import ProtocolError, StreamError
from sparktrain.protocol.codec import decode, encode
from sparktrain.protocol.credentials import CertificateBundle
from sparktrain.protocol.feed_messages import (
    AUTHORIZATION,
    FEED_LEASE_S,
    HEARTBEAT_S,
    AskedRows,
    Busy,
    Chunk,
    Delivered,
    Enough,
    FeedAddress,
    FeederHeartbeat,
    FeedRefused,
    FromFeeder,
    LastAnswer,
    MemberHeartbeat,
    OpenFeed,
    PartitionEnd,
    SendFrom,
)
from sparktrain.training.data.stream.answer_queue import Answer, AnsweredExchange, AnswerQueue
from sparktrain.training.data.stream.feed_queue import Feeder, FeedQueue, PartitionProgress
from sparktrain.training.data.stream.partition_use import PartitionKey

MOST_STREAMS = 32
"""Exchanges at the same time. Each holds a thread; further ones are asked to come back."""
MOST_REASON = 1000
"""Characters of a refusal: the status of a call has room for some thousand bytes."""


class FeedServer:
    """Listens for feeders, from its construction to `close`. Any thread may call it."""

    def __init__(
        self,
        host: str,
        certificates: CertificateBundle,
        token: str,
        *,
        lease_s: float = FEED_LEASE_S,
        heartbeat_s: float = HEARTBEAT_S,
        clock: Clock | None = None,
    ) -> None:
        """`host` is the IP address to listen on. Raises StreamError when it cannot be bound."""
        self._feeds: dict[str, FeedQueue] = {}
        self._lease_s = lease_s
        self._clock = clock or SystemClock()
        self._name = secrets.token_hex(8)
        self._exchanges = _Exchanges(heartbeat_s)
        try:
            self._flight = _Flight(host, certificates, token, self._serve)
        except (OSError, pa.ArrowException) as error:
            raise StreamError(f"no port of {host} can be bound for streams: {error}") from error
        self.address = FeedAddress(host, self._flight.port, self._name)

    def feed(self, name: str) -> FeedQueue:
        """The queue of the feed `name`, which exists from the first call on."""
        if name not in self._feeds:
            self._feeds[name] = FeedQueue(name, self._lease_s, self._clock)
        return self._feeds[name]

    @property
    def streams(self) -> int:
        """Exchanges that are open."""
        return self._exchanges.count

    def look(self) -> None:
        """Look for feeders that are silent. Does not block; called several times a second."""
        for queue in list(self._feeds.values()):
            queue.look()

    def close(self) -> None:
        """End every exchange, and stop listening. Blocks until all have ended, for a moment."""
        self._exchanges.stop()
        for queue in list(self._feeds.values()):
            queue.close()
        self._flight.shutdown()

    def _serve(self, exchange: "_Exchange") -> LastAnswer | None:
        """Serve one exchange, in its thread; returns what ends it, None when the peer has ended it."""
        if not self._exchanges.add(exchange):
            return Busy(MOST_STREAMS)
        try:
            return self._answer_to(exchange) if exchange.request.answers else self._feed_from(exchange)
        except (StreamError, ProtocolError) as error:
            return FeedRefused(str(error)[:MOST_REASON])
        finally:
            self._exchanges.remove(exchange)

    def _feed_from(self, exchange: "_Exchange") -> LastAnswer | None:
        request = exchange.request
        queue = self._feeds.get(request.feed)
        if request.server != self._name or queue is None:
            raise StreamError(f"stream {request.feed!r} belongs to another process, which is gone")
        key = PartitionKey(request.epoch, request.micro_batch, request.partition)
        feeder = Feeder(exchange.is_closed, exchange.peer)
        queue.heard(feeder)
        try:
            progress = queue.claim(feeder, key)
            if progress is None:
                return Enough()
            if progress.complete:
                return _delivered(queue, feeder, key, exchange.request, progress)
            with suppress(pa.ArrowException, OSError):  # its peer is gone, which the next line finds out
                exchange.send(SendFrom(progress.rows, progress.batches, progress.checksum))
            return self._receive(exchange, queue, feeder, key)
        finally:
            queue.release(feeder)

    def _receive(self, exchange: "_Exchange", queue: FeedQueue, feeder: Feeder, key: PartitionKey) -> LastAnswer | None:
        """Pass the batches of a partition to the queue, until its end or that of the exchange."""
        while (received := exchange.receive()) is not None:
            queue.heard(feeder)
            message, batch = received
            match message:
                case Chunk(first_row=first, checksum=checksum) if batch is not None:
                    if not queue.put(feeder, key, batch, first, checksum):
                        return Enough()
                case PartitionEnd(rows=rows):
                    return _delivered(queue, feeder, key, exchange.request, queue.complete(feeder, key, rows))
                case FeederHeartbeat():
                    if not queue.wants(key):  # it may compute for long before it sends again
                        return Enough()
                case _:
                    raise ProtocolError(f"a feeder sent {type(message).__name__} without rows")
        return None

    def _answer_to(self, exchange: "_Exchange") -> LastAnswer | None:
        """Serve an exchange with answers; its feeder ends it when it has all results."""
        queue = self._feeds.get(exchange.request.feed)
        if exchange.request.server != self._name or queue is None:
            return Enough()  # another process listens here now: the task looks for its successor
        answers = queue.answers
        answered_exchange = answers.enter(exchange.request.partition, exchange.is_closed, exchange.peer)
        try:
            with suppress(pa.ArrowException, OSError):  # its peer is gone, which the next line finds out
                exchange.send(SendFrom(0, 0, 0))
            # On the exchange by which the rows came: queues that attempts of a task share mix up their results.
            spawn(lambda: _send_answers(exchange, answers, answered_exchange), "sparktrain-feed-results")
            return _receive_asked(exchange, answers, answered_exchange)
        finally:
            answers.leave(answered_exchange)


def _delivered(
    queue: FeedQueue, feeder: Feeder, key: PartitionKey, request: OpenFeed, done: PartitionProgress | None
) -> LastAnswer:
    """The answer to the end of a partition, once it is used where the feeder asked for that."""
    if done is None or (request.until_taken and not queue.await_use(feeder, key)):
        return Enough()
    return Delivered(done.rows, done.batches)


def _receive_asked(
    exchange: "_Exchange", answers: AnswerQueue, answered_exchange: AnsweredExchange
) -> LastAnswer | None:
    """Pass rows that wait for results to the queue, until the exchange ends."""
    while (last := answers.last_answer(answered_exchange)) is None and (received := exchange.receive()) is not None:
        answers.heard(answered_exchange)
        message, batch = received
        match message:
            case AskedRows(first_row=first, rows=rows) if batch is not None:
                answers.put(answered_exchange, batch, first, rows)
            case PartitionEnd():
                answers.end(answered_exchange)
            case FeederHeartbeat():
                pass
            case _:
                raise ProtocolError(f"a feeder sent {type(message).__name__} on an exchange with answers")
    return last


def _send_answers(exchange: "_Exchange", answers: AnswerQueue, answered_exchange: AnsweredExchange) -> None:
    """Send results as they come, in a thread of their own: the training thread waits for no network."""
    while (answer := answers.next_answer(answered_exchange)) is not None:
        try:
            exchange.answer(answer)
        except (pa.ArrowException, OSError):  # its peer is gone
            answers.leave(answered_exchange)


class _Exchange:
    """One exchange: its thread receives, and any thread sends."""

    def __init__(
        self,
        context: flight.ServerCallContext,
        request: OpenFeed,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        self.request = request
        self.is_closed = context.is_cancelled
        self.peer = context.peer()
        self._reader = reader
        self._writer = writer
        self._sending = threading.Lock()
        self._is_started = False
        self._ended = False

    def send(self, message: SendFrom) -> None:
        """Send `message`. Raises what Arrow raises when the peer is gone."""
        with self._sending:
            self._writer.write_metadata(encode(message))

    def answer(self, answer: Answer) -> None:
        """Send results. Blocks while the peer has no room. Raises what Arrow raises when it is gone."""
        with self._sending:
            if self._ended:
                return
            if not self._is_started:
                self._writer.begin(answer.batch.schema)
                self._is_started = True
            self._writer.write_with_metadata(answer.batch, encode(answer.message))

    def heartbeat(self) -> None:
        """Send a heartbeat, unless another message is on its way."""
        if self._sending.acquire(blocking=False):
            try:
                with suppress(pa.ArrowException, OSError):  # its own thread finds out
                    if not self._ended:
                        self._writer.write_metadata(encode(MemberHeartbeat()))
            finally:
                self._sending.release()

    def end(self) -> None:
        """Use the exchange no more: Flight frees it when its thread returns, and a later write would crash."""
        with self._sending:
            self._ended = True

    def receive(self) -> tuple[FromFeeder, pa.RecordBatch | None] | None:
        """The next message, with its rows; None when the peer has ended the exchange, or is gone."""
        try:
            chunk = self._reader.read_chunk()
        except (StopIteration, pa.ArrowException, OSError):
            return None
        if chunk.app_metadata is None:
            raise ProtocolError("a feeder sent rows without their place")
        return decode(chunk.app_metadata.to_pybytes(), FromFeeder), chunk.data


class _Exchanges:
    """The open exchanges, and the thread that sends their heartbeats."""

    def __init__(self, heartbeat_s: float) -> None:
        self._open: set[_Exchange] = set()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._heartbeat_s = heartbeat_s
        spawn(self._heartbeat, "sparktrain-feed-heartbeats")

    @property
    def count(self) -> int:
        return len(self._open)

    def add(self, exchange: _Exchange) -> bool:
        """Whether there was room for it."""
        with self._lock:
            if len(self._open) >= MOST_STREAMS:
                return False
            self._open.add(exchange)
            return True

    def remove(self, exchange: _Exchange) -> None:
        with self._lock:
            self._open.discard(exchange)

    def stop(self) -> None:
        self._stopped.set()

    def _heartbeat(self) -> None:
        while not self._stopped.wait(self._heartbeat_s):
            with self._lock:
                exchanges = list(self._open)
            for exchange in exchanges:
                exchange.heartbeat()


class _Authentication(flight.ServerMiddlewareFactory):  # type: ignore[misc] # it has no types
    """Refuses calls without the token, beside the certificates, which TLS checks."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str | bytes]]) -> None:
        """See base class."""
        tokens = [token if isinstance(token, bytes) else token.encode() for token in headers.get(AUTHORIZATION, [])]
        if not any(hmac.compare_digest(token, self._expected) for token in tokens):
            raise flight.FlightUnauthenticatedError("this stream wants the token of its run")


class _Flight(flight.FlightServerBase):  # type: ignore[misc] # as above
    """Flight's side of the server: one call of `do_exchange` for each exchange, in a thread of its own."""

    def __init__(
        self, host: str, certificates: CertificateBundle, token: str, serve: Callable[[_Exchange], LastAnswer | None]
    ) -> None:
        self._serve_exchange = serve
        super().__init__(
            flight.Location.for_grpc_tls(host, 0),
            tls_certificates=[(certificates.certificate, certificates.key)],
            verify_client=True,
            root_certificates=certificates.authority,
            middleware={"token": _Authentication(token)},
        )

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        """See base class. Raises the last answer: see `LastAnswer`."""
        try:
            exchange = _Exchange(context, decode(descriptor.command or b"", OpenFeed), reader, writer)
        except ProtocolError as error:
            raise flight.FlightServerError(str(error)) from error
        try:
            last = self._serve_exchange(exchange)
        finally:
            exchange.end()
        if last is not None:
            # In the status, and not as a message: where the peer's write fails at this moment, Flight drops all that it
            # has not read yet.
            raise flight.FlightServerError("the member has ended the exchange", extra_info=encode(last))
