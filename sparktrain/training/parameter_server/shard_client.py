"""A member's connection to one parameter server: it survives lost answers, and finds the server at a new address."""

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct

from sparktrain.backoff import Backoff, RetryBudget
from sparktrain.clock import BlockingClock, SystemClock
from sparktrain.errors import ProtocolError, RingError
from sparktrain.protocol.credentials import SERVER_NAME, CertificateBundle
from sparktrain.state.message import Message
from sparktrain.training.parameter_server.server_settings import ServerSettings
from sparktrain.training.parameter_server.shard_messages import (
    Endpoint,
    Fill,
    Filled,
    LeaveServer,
    NotYet,
    PullValues,
    Pushed,
    PushGradients,
    Saved,
    SaveShard,
    ShardAnswer,
    ShardRefused,
    Values,
    receive_header,
    receive_into,
    send_frame,
    tls_context,
)
from sparktrain.training.parameter_server.shard_plan import PieceLayout, layout_of
from sparktrain.training.parameter_server.shard_state import Push, PushAnswer, PushOutcome, Sender

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
        clock: BlockingClock | None = None,
    ) -> None:
        """`find` returns where the server listens now; it is asked before each connection, and may raise OSError."""
        self.version = 0
        """The newest version that this member has pulled."""
        self._shard = shard
        self._layout = layout
        self._sender = sender
        self._context = tls_context(certificates, server=False)
        self._find = find
        self._budget_s = budget_s
        self._clock = clock or SystemClock()
        self._connection: ssl.SSLSocket | None = None
        self._term = 0
        self._number = 0
        self._awaited = 0
        """The version that includes the newest push."""

    def fill(self, settings: ServerSettings, copy: ShardCopy, optimizer: bytes) -> None:
        """Give the server variables to start with. One that has some keeps them: the next pull shows which."""
        request = Fill(settings, self._layout, copy.slots, copy.version, optimizer)
        self._call(request, Filled, memoryview(b"".join((copy.values, copy.slot_values))))

    def pull(self, into: memoryview) -> int:
        """Receive the variables into `into`; returns their version. Waits for the round of the newest push."""
        answer, _ = self._call(PullValues(self._awaited, self._term), Values, into=into)
        self._term, self.version, self._awaited = answer.term, answer.version, answer.version
        return self.version

    def push(self, gradients: memoryview) -> PushAnswer:
        """Send gradients for the variables that were pulled last. A server without variables counts them as late."""
        self._number += 1
        push = Push(self._sender, self._number, self._term, self.version)
        found, _ = self._call(PushGradients(push), Pushed, gradients, empty=True)
        answer: PushAnswer = found.answer if isinstance(found, Pushed) else PushAnswer(PushOutcome.LATE, 0, 0)
        self._awaited = answer.version
        return answer

    def leave(self) -> None:
        """Report that this member has trained to its end."""
        self._call(LeaveServer(self._sender), NotYet)

    def save(self) -> ShardCopy:
        """A copy of the server's variables, and of the optimizer's own."""
        saved, payload = self._call(SaveShard(), Saved)
        values = self._layout.nbytes
        return ShardCopy(saved.version, payload[:values], saved.slots, payload[values:])

    def close(self) -> None:
        """End the connection. The next call connects again."""
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()
            self._connection = None

    def _call(
        self,
        request: Message,
        kind: type[Message],
        payload: memoryview = _NOTHING,
        into: memoryview | None = None,
        *,
        empty: bool = False,
    ) -> tuple[Any, memoryview]:
        """The answer to `request`, of type `kind`, or `NotYet` where `empty`. Sends it again after a lost answer."""
        budget = RetryBudget(self._budget_s, Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, (0.8, 1.2)), self._clock)
        problem = "it has no variables, or its round is not complete"
        while True:
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
            held = isinstance(request, PullValues) and self._connection is not None
            if not (budget.spent_s() < self._budget_s if held else budget.wait()):  # the server has waited already
                raise RingError(
                    f"parameter server {self._shard} did not answer {type(request).__name__} within "
                    f"{self._budget_s:g} s: {problem}; see its log, and those of members that train"
                )

    def _exchange(self, request: Message, payload: memoryview, into: memoryview | None) -> tuple[Any, memoryview]:
        if self._connection is None:
            self._connection = self._connect()
        send_frame(self._connection, request, payload)
        answer, length = receive_header(self._connection, ShardAnswer)
        if not isinstance(answer, Values) or into is None:
            into = memoryview(bytearray(length))
        elif length != len(into):
            raise ProtocolError(f"parameter server {self._shard} sent {length} bytes, {len(into)} are expected")
        receive_into(self._connection, into)
        return answer, into

    def _connect(self) -> ssl.SSLSocket:
        found = self._find()
        plain = socket.create_connection((found.host, found.port), CONNECT_S)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = self._context.wrap_socket(plain, server_hostname=SERVER_NAME)
        except BaseException:
            plain.close()
            raise
        connection.settimeout(TRANSFER_S)
        return connection
