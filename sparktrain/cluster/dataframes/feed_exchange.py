"""One exchange between a feeder and the member that it feeds: sends rows, receives answers, and watches for silence.

Three threads beside that of the caller: one receives, one sends heartbeats, one cancels the exchange when the member is
silent for the lease. A blocked write can be ended only by cancelling the reader.
"""

import queue
import threading
from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.flight as flight

from sparktrain.base.clock import SystemClock
from sparktrain.base.threads import spawn
from sparktrain.errors import ProtocolError, StreamError
from sparktrain.protocol.codec import decode, encode
from sparktrain.protocol.credentials import SERVER_NAME
from sparktrain.protocol.feed_messages import (
    AUTHORIZATION,
    HEARTBEAT_S,
    Enough,
    FeedAddress,
    FeedAnswer,
    FeederHeartbeat,
    FeedRefused,
    FeedTicket,
    FromFedMember,
    FromFeeder,
    LastAnswer,
    OpenFeed,
    Results,
    SendFrom,
)

_LAST_WORD_S = 5.0
"""How long a failed write waits for the thread that receives to find the reason."""


class UnreachableMemberError(StreamError):
    """No member listens at the address yet, or any more."""


class Answered(NamedTuple):
    """Results of the member for some rows."""

    message: Results
    batch: pa.RecordBatch


class FeedExchange:
    """One exchange. Its methods belong to one thread; `close` ends it, and is always called."""

    def __init__(self, ticket: FeedTicket, address: FeedAddress, request: OpenFeed) -> None:
        """Connect, and ask. Raises StreamError; UnreachableMemberError when the member cannot be reached."""
        self._address = address
        self._lease_s = ticket.lease_s
        self._clock = SystemClock()
        self._heard_at = self._clock.now()
        self._answers: queue.SimpleQueue[FeedAnswer | Answered | Exception] = queue.SimpleQueue()
        self._early: deque[Answered] = deque()
        """Results that came before a failed write, and were not asked for yet."""
        self.refused = False
        """The member does not accept what was sent to it."""
        self._enough = threading.Event()
        self._closed = threading.Event()
        self._silent = False
        self._sending = threading.Lock()
        certificates = ticket.certificates
        self._client = flight.FlightClient(
            f"grpc+tls://{address.host}:{address.port}",
            tls_root_certs=certificates.authority,
            cert_chain=certificates.certificate,
            private_key=certificates.key,
            override_hostname=SERVER_NAME,
        )
        options = flight.FlightCallOptions(headers=[(AUTHORIZATION.encode(), f"Bearer {ticket.token}".encode())])
        descriptor = flight.FlightDescriptor.for_command(encode(request))
        try:
            # An exchange, because Flight has no other call that another thread can end while its writer is blocked: a
            # member that is stopped blocks it for ever, also with keepalive.
            self._writer, self._reader = self._client.do_exchange(descriptor, options)
        except (pa.ArrowException, OSError) as error:
            self._client.close()
            raise self._explained(error) from error
        self._is_started = False
        self._answered_last = False
        """The member has sent its last message, and closes the exchange."""
        # A client that writes all before it reads blocks after some batches: both windows are full then.
        spawn(self._receive, "sparktrain-feed-answers")
        # A timeout of the call would count while data flows too, so silence is measured here.
        spawn(self._watch, "sparktrain-feed-lease")

    @property
    def enough(self) -> bool:
        """Whether the member needs no more rows."""
        return self._enough.is_set()

    def ask(self) -> FeedAnswer:
        """The member's answer to the command of the exchange. Blocks as long as the member sends heartbeats."""
        with suppress(pa.ArrowException, OSError), self._sending:  # the thread that receives gets the reason
            self._writer.write_metadata(encode(FeederHeartbeat()))  # the first message carries the command
        answer = self.answer()
        spawn(self._heartbeat, "sparktrain-feed-heartbeats")
        return answer

    def answer(self) -> FeedAnswer:
        """The next answer. Blocks as long as the member sends heartbeats. Raises as the constructor."""
        answer = self._next()
        if isinstance(answer, Answered):
            raise StreamError(f"the member at {self._address} sent results on an exchange without answers")
        return answer

    def results(self, block: bool) -> Answered | None:
        """The next results; None when there are none yet, and when the member takes no more rows (`enough`).

        `block`: wait as long as the member sends heartbeats. Raises as `answer`.
        """
        if self._early:
            return self._early.popleft()
        try:
            answer = self._next(block)
        except queue.Empty:
            return None
        if isinstance(answer, Answered):
            return answer
        if not isinstance(answer, Enough):
            raise StreamError(f"the member at {self._address} sent {type(answer).__name__} in place of results")
        self._answers.put(answer)  # for the next call
        return None

    def _next(self, block: bool = True) -> FeedAnswer | Answered:
        answer = self._answers.get(block)
        if isinstance(answer, FeedRefused):
            raise self._refusal(answer)
        if isinstance(answer, Exception):
            self._answers.put(answer)  # for the next call
            raise self._explained(answer) from answer
        return answer

    def _refusal(self, answer: FeedRefused) -> StreamError:
        self.refused = True
        return StreamError(f"the member at {self._address} refused rows: {answer.reason}")

    def send(self, message: FromFeeder, batch: pa.RecordBatch | None = None) -> bool:
        """Send `message`, with rows; returns False when the member needs no more. Blocks while the member has no room.

        Raises StreamError when the member is gone, or refuses the rows.
        """
        if self.enough:
            return False
        try:
            with self._sending:
                self._write(message, batch)
        except (pa.ArrowException, OSError) as error:
            with suppress(queue.Empty):  # the last answer before the member closed the exchange has the reason
                while isinstance(answer := self._answers.get(timeout=_LAST_WORD_S), Answered):
                    self._early.append(answer)
                if isinstance(answer, FeedRefused):
                    raise self._refusal(answer) from error
                self._answers.put(answer)  # for the next call
            if not self.enough:
                raise self._explained(error) from error
        return not self.enough

    def _write(self, message: FromFeeder, batch: pa.RecordBatch | None) -> None:
        if batch is None:
            self._writer.write_metadata(encode(message))
            return
        if not self._is_started:
            self._writer.begin(batch.schema)
            self._is_started = True
        self._writer.write_with_metadata(batch, encode(message))

    def close(self) -> None:
        """End the exchange: all rows that have been acknowledged stay. Blocks for the lease at most."""
        with suppress(pa.ArrowException, OSError):
            if not self._answered_last:
                self._reader.cancel()  # else the member closes the exchange, too
            self._writer.close()
        self._closed.set()
        with suppress(pa.ArrowException, OSError):
            self._client.close()

    # ---- threads

    def _receive(self) -> None:
        try:
            while True:
                chunk = self._reader.read_chunk()
                metadata = chunk.app_metadata
                self._heard_at = self._clock.now()
                message = decode(metadata.to_pybytes() if metadata is not None else b"", FromFedMember)
                if isinstance(message, SendFrom):
                    self._answers.put(message)
                elif isinstance(message, Results):
                    self._answers.put(Answered(message, chunk.data))
        except StopIteration:
            self._answers.put(StreamError("it closed the exchange"))
        except Exception as error:  # Arrow's, or of the decoder: the caller raises it
            self._answers.put(self._last_answer(error) or error)

    def _last_answer(self, error: Exception) -> FeedAnswer | None:
        """What the member has ended the exchange with, if it has."""
        status = getattr(error, "extra_info", None)
        if not status:
            return None
        try:
            answer: FeedAnswer = decode(status, LastAnswer)
        except ProtocolError:  # the caller raises the error itself
            return None
        self._answered_last = True
        if isinstance(answer, Enough):
            self._enough.set()
        return answer

    def _watch(self) -> None:
        while not self._closed.wait(min(0.5, self._lease_s / 4)):
            if self._clock.now() - self._heard_at > self._lease_s:
                self._silent = True
                with suppress(pa.ArrowException, OSError):
                    self._reader.cancel()
                return

    def _heartbeat(self) -> None:
        while not self._closed.wait(HEARTBEAT_S):
            if self._sending.acquire(blocking=False):  # else rows are on their way
                try:
                    self._writer.write_metadata(encode(FeederHeartbeat()))
                except (pa.ArrowException, OSError):  # the caller finds out
                    return
                finally:
                    self._sending.release()

    def _explained(self, error: Any) -> StreamError:
        """What an error of the exchange means."""
        if self._silent:
            return StreamError(
                f"the member at {self._address} gave no heartbeat for {self._lease_s:g} s: its process is stopped, or "
                "its network is down"
            )
        if isinstance(error, flight.FlightUnauthenticatedError):
            return StreamError(f"the member at {self._address} refused the token: it belongs to another run")
        if isinstance(error, flight.FlightUnavailableError):
            return UnreachableMemberError(
                f"the member at {self._address} cannot be reached: it has ended, it belongs to another run, which has "
                f"other certificates, or a firewall is between it and this host ({_short(error)})"
            )
        return StreamError(f"the exchange with the member at {self._address} broke off: {_short(error)}")


def _short(error: BaseException) -> str:
    """The first sentence of one of Flight's long texts."""
    return str(error).split(". gRPC client debug context", 1)[0]
