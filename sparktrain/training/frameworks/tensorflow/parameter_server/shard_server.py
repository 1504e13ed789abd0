"""Serves the shard of one parameter server: a thread for each connection, and one update at a time."""

import secrets
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from numpy.typing import NDArray

from sparktrain.base.clock import SystemClock
from sparktrain.base.threads import spawn
from sparktrain.errors import FormError, ProtocolError
from sparktrain.protocol.credentials import CertificateBundle
from sparktrain.protocol.strangers import StrangerPlaces
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
    ShardRefused,
    ShardRequest,
    Values,
    prepare,
    receive_header,
    receive_into,
    send_frame,
    tls_context,
)
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_plan import PieceLayout, layout_of
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_state import (
    AddDifferences,
    ShardState,
    UpdateRule,
)

HELLO_S = 10.0
"""How long a connection may take for its handshake."""
STRANGERS = 256
"""Limit of connections at a time that have not finished their handshake: each has a thread."""
STRANGERS_OF_ADDRESS = 64
"""The same for one address: all members of a host connect at once."""
_LOOK_S = 1.0
"""Time between two looks for handshakes that are too slow."""
IDLE_S = 3600.0
"""How long a member may compute between two requests; then it connects again."""
TRANSFER_S = 60.0
"""How long a connection may be silent within a message."""
HOLD_S = 1.0
"""How long a pull waits for its round before it is asked to come back."""

MakeRule = Callable[[bytes, Sequence[NDArray[Any]]], UpdateRule]
"""Makes an optimizer from `Fill.optimizer` and the variables."""


class ShardServer:
    """Listens for members, from its construction to `close`. Any thread may call it."""

    def __init__(self, endpoint: Endpoint, certificates: CertificateBundle, make_rule: MakeRule) -> None:
        """`endpoint` has the IP address to listen on, and port 0 for any. Raises FormError when it cannot be bound."""
        self._context = tls_context(certificates, server=True)
        self._make_rule = make_rule
        self._state: ShardState | None = None
        self._layout = layout_of([])
        self._changed = threading.Condition()
        self._open: set[socket.socket] = set()
        self._closed = False
        self._strangers = StrangerPlaces(SystemClock(), STRANGERS, STRANGERS_OF_ADDRESS, HELLO_S)
        try:
            family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
            # A member holds its port until the server has it.
            self._listener = socket.create_server((endpoint.host, endpoint.port), family=family, reuse_port=True)
        except OSError as error:
            raise FormError(f"{endpoint} cannot be bound for a parameter server: {error}") from error
        self._listener.settimeout(_LOOK_S)
        self.endpoint = Endpoint(endpoint.host, self._listener.getsockname()[1])
        spawn(self._accept, "sparktrain-ps-accept")

    def close(self) -> None:
        """Stop listening, and end all connections: members look for a successor. Does not block."""
        with self._changed:
            self._closed = True
            for open_socket in (self._listener, *self._open):
                with suppress(OSError):
                    open_socket.shutdown(socket.SHUT_RDWR)
            self._changed.notify_all()
        self._listener.close()

    def join(self) -> None:
        """Block until `close`."""
        with self._changed:
            while not self._closed:
                self._changed.wait(HOLD_S)

    def _accept(self) -> None:
        while not self._closed:
            self._strangers.end_late()
            try:
                plain, address = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                continue  # no peer came, it gave up, or this process has too many open files for a moment
            self._admit(plain, address[0])

    def _admit(self, plain: socket.socket, address: str) -> None:
        """Give the connection a thread, where strangers have room for it; members that find none connect again."""
        with suppress(OSError):  # the peer gave up
            plain.settimeout(HELLO_S)
            prepare(plain)
            # The handshake is for the connection's own thread: a slow stranger must not hold up the others.
            connection = self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
            # 3,000 idle connections were as many threads of this process.
            if self._strangers.enter(connection, address):
                spawn(lambda: self._serve(connection), "sparktrain-ps-member")
            else:
                connection.close()

    def _serve(self, connection: ssl.SSLSocket) -> None:
        """Answer the requests of one connection until it ends."""
        with suppress(OSError, EOFError), connection:
            try:
                connection.do_handshake()
            finally:
                self._strangers.leave(connection)
            with self._changed:
                if self._closed:
                    return
                self._open.add(connection)
            try:
                self._answer_all(connection)
            except (OSError, EOFError):
                raise
            except Exception as error:  # the optimizer's too: the member that asked reports it
                send_frame(connection, ShardRefused(f"{type(error).__name__}: {error}"))
            finally:
                with self._changed:
                    self._open.discard(connection)

    def _answer_all(self, connection: ssl.SSLSocket) -> None:
        scratch = _Scratch()
        while True:
            connection.settimeout(IDLE_S)
            request, length = receive_header(connection, ShardRequest)
            connection.settimeout(TRANSFER_S)
            if length != (expected := self._payload(request, length)):
                raise ProtocolError(f"{type(request).__name__} has {length} bytes of payload, {expected} are expected")
            payload = scratch.bytes(length)
            receive_into(connection, payload)
            send_frame(connection, *self._answer(request, payload, scratch))

    def _payload(self, request: Any, sent: int) -> int:
        """How many bytes must follow `request`: any number, as `sent`, where only later state can decide."""
        if isinstance(request, Fill):
            return request.values.nbytes + request.slots.nbytes
        if isinstance(request, PushGradients):
            return sent if self._state is None else self._layout.nbytes
        return 0

    def _answer(self, request: Any, payload: memoryview, scratch: "_Scratch") -> tuple[Message, memoryview | bytes]:
        with self._changed:
            match request:
                case Fill():
                    return self._fill(request, payload), b""
                case PullValues():
                    return self._values(request, scratch)
                case PushGradients(push=push) if self._state is not None:
                    if len(payload) != self._layout.nbytes:  # the server was filled while they came
                        raise ProtocolError(f"{len(payload)} bytes were pushed for {self._layout.nbytes} of variables")
                    old_version = self._state.version
                    answer = self._state.push(push, self._layout.views(payload))
                    if self._state.version != old_version:
                        self._changed.notify_all()
                    return Pushed(answer, self._state.standing), b""
                case LeaveServer(sender=sender, fit=fit, stops=stops) if self._state is not None:
                    self._state.leave(sender, fit, stops=stops)
                    self._changed.notify_all()
                    return Left(self._state.version, self._state.standing), b""
                case SaveShard() if self._state is not None:
                    slots = self._state.slots()
                    layout = layout_of([(slot.dtype.name, slot.size) for slot in slots])
                    saved = scratch.bytes(self._layout.nbytes + layout.nbytes)
                    _pack(self._layout, self._state.values, saved)
                    _pack(layout, slots, saved[self._layout.nbytes :])
                    return Saved(self._state.version, layout), saved
            return NotYet(), b""

    def _fill(self, request: Fill, payload: memoryview) -> Message:
        if self._state is None or request.replaces:
            values = request.values.views(bytearray(payload[: request.values.nbytes]))
            rule = AddDifferences() if request.settings.local else self._make_rule(request.optimizer, values)
            if request.slots.sizes:
                _restore_slots(rule, request.slots.views(payload[request.values.nbytes :]))
            term = secrets.randbits(62)
            version = request.version
            standing = request.standing
            self._state = ShardState(request.settings, values, rule, term=term, version=version, standing=standing)
            self._layout = request.values
            self._changed.notify_all()
        return Filled(self._state.term, self._state.version)

    def _values(self, request: PullValues, scratch: "_Scratch") -> tuple[Message, memoryview | bytes]:
        self._changed.wait_for(lambda: self._closed or self._has_values_for(request), HOLD_S)
        if self._state is None or not self._has_values_for(request):
            return NotYet(), b""
        copied = scratch.bytes(self._layout.nbytes)  # the next update must not change what is being sent
        _pack(self._layout, self._state.values, copied)
        return Values(self._state.term, self._state.version), copied

    def _has_values_for(self, request: PullValues) -> bool:
        state = self._state
        return state is not None and (state.term != request.term or state.version >= request.at_least)


class _Scratch:
    """The memory of one connection, for one message at a time: fresh pages for each would cost as much as to copy."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def bytes(self, count: int) -> memoryview:
        if len(self._buffer) < count:
            self._buffer = bytearray(count)
        return memoryview(self._buffer)[:count]


def _pack(layout: PieceLayout, arrays: Sequence[NDArray[Any]], buffer: memoryview) -> None:
    for view, array in zip(layout.views(buffer), arrays, strict=True):
        view[:] = array.reshape(-1)


def _restore_slots(rule: UpdateRule, saved: Sequence[NDArray[Any]]) -> None:
    slots = rule.slots()
    expected, received = ([(array.dtype, array.size) for array in arrays] for arrays in (slots, saved))
    if expected != received:
        raise ProtocolError(f"an optimizer with variables {expected} was given {received}: the optimizer has changed")
    rule.restore([array.reshape(slot.shape) for slot, array in zip(slots, saved, strict=True)])
