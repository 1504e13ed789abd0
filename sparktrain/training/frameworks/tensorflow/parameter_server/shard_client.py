"""A member's connection to one parameter server: it survives lost answers, and finds the server at a new address."""

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sparktrain.base.backoff import Backoff, RetryBudget
from sparktrain.base.clock import Clock, SystemClock
from sparktrain.config.server_settings import ServerSettings
from sparktrain.errors import ProtocolError, RingError
from sparktrain.protocol.credentials import SERVER_NAME, CertificateBundle
from sparktrain.state.message import Message
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_messages import (
    Endpoint,
    Fill,
    Filled,
    LeaveServer,
    Left,
    NotYet,
    PullValues,
    Pushed,
    PushGradients,
    Saved,
    SaveShard,
    ShardAnswer,
    ShardRefused,
    Values,
    prepare,
    receive_header,
    receive_into,
    send_frame,
    tls_context,
)
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_plan import PieceLayout, layout_of
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_state import (
    FitEnds,
    Push,
    PushAnswer,
    PushOutcome,
    Sender,
)

CONNECT_S = 5.0
TRANSFER_S = 60.0
"""How long an answer may be silent before the connection counts as lost."""
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
_EMPTY = layout_of([])
_NOTHING = memoryview(b"")


class ShardCopy(Struct, frozen=True):
    """All that a server needs to continue: `Fill` gives it to another one."""

    version: int
    values: memoryview
    slots: PieceLayout = _EMPTY
    slot_values: memoryview = _NOTHING


class ShardClient:
    """Requests to one server. One thread at a time may call it; every method blocks.

    Each raises RingError when the server does not answer within the budget, wherever `find` looks for it, and
    ProtocolError when it refuses.
    """

    def __init__(
        self,
        shard: int,
        layout: PieceLayout,
        sender: Sender,
        certificates: CertificateBundle,
        find: Callable[[], Endpoint],
        *,
        budget_s: float,
        slow_s: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`find` returns where the server listens now; it is asked before each request, and may raise OSError.

        `budget_s`: how long a server may not answer. `slow_s`: how long one that answers may wait for other members, by
        default as long.
        """
        self.version = 0
        """The newest version that this member has pulled."""
        self.newest = 0
        """The newest version that the server had after `leave`."""
        self.standing = FitEnds()
        """What the server has reported of all members."""
        self._shard = shard
        self._layout = layout
        self._sender = sender
        self._context = tls_context(certificates, server=False)
        self._find = find
        self._budget_s = budget_s
        self._slow_s = budget_s if slow_s is None else max(slow_s, budget_s)
        self._clock = clock or SystemClock()
        self._connection: ssl.SSLSocket | None = None
        self._server: Endpoint | None = None
        """The other end of the connection: a successor elsewhere counts even while the old one answers."""
        self._term = 0
        self._number = 0
        self._awaited = 0
        """The version that includes the newest push."""
        self._fill_contents: tuple[ServerSettings, ShardCopy, bytes] | None = None
        """What this member fills a successor of the server with; None where another member does."""

    def fill(self, settings: ServerSettings, copy: ShardCopy, optimizer: bytes, *, replaces: bool = False) -> None:
        """Give the server variables to start with. One that has some keeps them: the next pull shows which.

        `replaces`: it takes these even then. What other members have computed for the earlier ones does not count.
        From then on this member gives each successor of the server the newest variables that it has pulled or saved,
        with the optimizer's own of the newest `save`.
        """
        contents = settings, copy, optimizer
        self._call(*self._filling(*contents, replaces=replaces), Filled)
        self._fill_contents = contents

    def pull(self, into: memoryview) -> int:
        """Receive the variables into `into`; returns their version. Waits for the round of the newest push.

        A member that has filled the server keeps `into` for a successor until the next pull has succeeded: it pulls
        into two buffers in turn.
        """
        answer, _ = self._call(PullValues(self._awaited, self._term), _NOTHING, Values, into=into)
        self._term = answer.term
        self.version = answer.version
        self._awaited = answer.version
        if self._fill_contents is not None:
            settings, copy, optimizer = self._fill_contents
            self._fill_contents = settings, replace(copy, version=self.version, values=into), optimizer
        return self.version

    def push(self, gradients: memoryview) -> PushAnswer:
        """Send gradients for the variables that were pulled last. A server without variables counts them as late."""
        self._number += 1
        push = Push(self._sender, self._number, self._term, self.version)
        reply, _ = self._call(PushGradients(push), gradients, Pushed, empty=True)
        answer = PushAnswer(PushOutcome.LATE, 0, 0)
        if isinstance(reply, Pushed):
            answer = reply.answer
            self.standing = self.standing.with_those(reply.standing)
        self._awaited = answer.version
        return answer

    def leave(self, fit: int = 1, *, stops: bool = False) -> FitEnds:
        """Report that this member has trained call number `fit` to its end; returns how far the others are.

        `stops`: it has stopped before its last step, and the others do so too. A later call gets later news.
        """
        reply, _ = self._call(LeaveServer(self._sender, fit, stops), _NOTHING, Left)
        self.newest = reply.version
        self.standing = self.standing.with_those(reply.standing)
        return self.standing

    def save(self) -> ShardCopy:
        """A copy of the server's variables, and of the optimizer's own."""
        saved, payload = self._call(SaveShard(), _NOTHING, Saved)
        values = self._layout.nbytes
        copy = ShardCopy(saved.version, payload[:values], saved.slots, payload[values:])
        if self._fill_contents is not None:
            self._fill_contents = self._fill_contents[0], copy, self._fill_contents[2]
        return copy

    def close(self) -> None:
        """End the connection. The next call connects again."""
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()
            self._connection = None

    def _filling(
        self, settings: ServerSettings, copy: ShardCopy, optimizer: bytes, *, replaces: bool = False
    ) -> tuple[Fill, memoryview]:
        request = Fill(settings, self._layout, copy.slots, copy.version, optimizer, self.standing, replaces)
        return request, memoryview(b"".join((copy.values, copy.slot_values)))

    def _call(
        self,
        request: Message,
        payload: memoryview,
        kind: type[Message],
        into: memoryview | None = None,
        *,
        empty: bool = False,
    ) -> tuple[Any, memoryview]:
        """The answer to `request`, of type `kind`, or `NotYet` where `empty`. Sends it again after a lost answer."""
        started_at = self._clock.now()
        budget = self._budget()
        while True:
            problem = "it has no variables, or its round is not complete"
            try:
                answer, received = self._exchange(request, payload, into)
            except (OSError, EOFError) as error:
                self.close()
                problem = str(error) or type(error).__name__
            else:
                if isinstance(answer, kind) or (empty and isinstance(answer, NotYet)):
                    return answer, received
                if isinstance(answer, ShardRefused):
                    raise ProtocolError(f"parameter server {self._shard} refused: {answer.reason}")
                if not isinstance(answer, NotYet):
                    raise ProtocolError(f"parameter server {self._shard} answered with {type(answer).__name__}")
                if self._clock.now() - started_at >= self._slow_s:
                    raise self._silent(request, self._slow_s, problem)
                # It answered, so it is alive, and the budget for silence starts over.
                budget = self._budget()
                if isinstance(request, PullValues):
                    continue  # the server has waited already
            if not budget.wait():
                raise self._silent(request, self._budget_s, problem)

    def _silent(self, request: Message, waited_s: float, problem: str) -> RingError:
        return RingError(
            f"parameter server {self._shard} did not answer {type(request).__name__} within {waited_s:g} s: "
            f"{problem}; see its log, and those of members that train"
        )

    def _budget(self) -> RetryBudget:
        return RetryBudget(self._budget_s, Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, (0.8, 1.2)), self._clock)

    def _exchange(self, request: Message, payload: memoryview, into: memoryview | None) -> tuple[Any, memoryview]:
        endpoint = self._find()
        if self._connection is None or endpoint != self._server:
            self.close()
            self._connection = self._connect(endpoint)
            self._server = endpoint
            # Before the request: a successor is empty, and answers nothing else. A server with variables keeps those.
            if self._fill_contents is not None:
                send_frame(self._connection, *self._filling(*self._fill_contents))
                filled, _ = receive_header(self._connection, ShardAnswer)
                if not isinstance(filled, Filled):
                    raise ProtocolError(f"parameter server {self._shard} did not take its variables: {filled}")
        send_frame(self._connection, request, payload)
        answer, length = receive_header(self._connection, ShardAnswer)
        if not isinstance(answer, Values) or into is None:
            into = memoryview(bytearray(length))
        elif length != len(into):
            raise ProtocolError(f"parameter server {self._shard} sent {length} bytes, {len(into)} are expected")
        receive_into(self._connection, into)
        return answer, into

    def _connect(self, endpoint: Endpoint) -> ssl.SSLSocket:
        plain = socket.create_connection((endpoint.host, endpoint.port), CONNECT_S)
        try:
            # A member waited a minute for bytes that could not come, as long as its gang gives a server to restart:
            # probes and TCP's user timeout end the connection of a host that is cut off.
            prepare(plain)
            connection = self._context.wrap_socket(plain, server_hostname=SERVER_NAME)
        except BaseException:
            plain.close()
            raise
        connection.settimeout(TRANSFER_S)
        return connection
