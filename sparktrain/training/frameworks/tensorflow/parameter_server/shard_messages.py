"""Every message between a member that trains and a parameter server, and how they travel.

Over one TLS connection, a request and then its answer. Each is a header in MessagePack and a payload of raw bytes,
which are received where they are used: gRPC and Arrow Flight copy them, and reach about half the throughput.
"""

import os
import socket
import ssl
import struct
from typing import Any

from msgspec import Struct

from sparktrain.config.server_settings import ServerSettings
from sparktrain.errors import ProtocolError
from sparktrain.protocol.codec import decode, encode
from sparktrain.protocol.credentials import CertificateBundle
from sparktrain.state.message import Message
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_plan import PieceLayout
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_state import FitEnds, Push, PushAnswer, Sender

_FRAME = struct.Struct("<IQ")
_MOST_HEADER_BYTES = 16 * 2**20
PROBE_S = 5
"""How long a connection is idle before it is probed, and between two probes."""
PROBES = 2
"""Probes without an answer after which it counts as lost."""
_AT_ONCE = 2**20
"""Bytes asked of a socket at a time."""


class Endpoint(Struct, frozen=True):
    """Where a server listens now."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


# ---- member -> server


class Fill(Message, frozen=True, tag=True):
    """The variables to start with, and the optimizer's own; a server that has some keeps them.

    Answered by `Filled`.
    """

    settings: ServerSettings
    values: PieceLayout
    slots: PieceLayout
    """Without pieces: the optimizer starts without history. Its bytes follow those of the values."""
    version: int
    optimizer: bytes
    """What the server makes its optimizer from."""
    standing: FitEnds = FitEnds()
    """What the member knows of the others: a server that succeeds another one has not met them yet."""
    replaces: bool = False
    """A server that has variables takes these too, as another history."""


class PullValues(Message, frozen=True, tag=True):
    """Answered by `Values` with version `at_least` of `term`, or any version of another term; else by `NotYet`."""

    at_least: int
    term: int


class PushGradients(Message, frozen=True, tag=True):
    """Beside gradients, or differences of weights in mode `local-sgd`.

    Answered by `Pushed`, or `NotYet` by an empty server.
    """

    push: Push


class LeaveServer(Message, frozen=True, tag=True):
    """The member has trained a call of `fit` to its end. Answered by `Left`, or `NotYet` by an empty server."""

    sender: Sender
    fit: int
    """The number of the call, from 1."""
    stops: bool
    """Whether it stopped before its last step, and the other members stop too."""


class SaveShard(Message, frozen=True, tag=True):
    """Answered by `Saved`, or `NotYet` by an empty server."""


ShardRequest = Fill | PullValues | PushGradients | LeaveServer | SaveShard

# ---- server -> member


class Filled(Message, frozen=True, tag=True):
    """The server has variables, these or earlier ones."""

    term: int
    version: int


class Values(Message, frozen=True, tag=True):
    """Beside the variables."""

    term: int
    version: int


class Pushed(Message, frozen=True, tag=True):
    """The server knows the push."""

    answer: PushAnswer
    standing: FitEnds


class Left(Message, frozen=True, tag=True):
    """The server no longer waits for the member."""

    version: int
    standing: FitEnds


class Saved(Message, frozen=True, tag=True):
    """Beside the variables, followed by those of the optimizer: all of one version."""

    version: int
    slots: PieceLayout


class NotYet(Message, frozen=True, tag=True):
    """There is nothing to answer with now: ask again."""


class ShardRefused(Message, frozen=True, tag=True):
    """The server does not accept the request, and would not accept a retry."""

    reason: str


ShardAnswer = Filled | Values | Pushed | Left | Saved | NotYet | ShardRefused


def tls_context(bundle: CertificateBundle, *, server: bool) -> ssl.SSLContext:
    """TLS 1.3 with the certificates of a run: each side verifies the other. Nothing is written to disk."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=bundle.authority.decode())
    # The module ssl reads keys from files only: this one is in memory.
    with os.fdopen(os.memfd_create("sparktrain-certificate"), "wb") as file:
        file.write(bundle.certificate + b"\n" + bundle.key)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    if server:
        context.num_tickets = 0
    return context


def prepare(connection: socket.socket) -> None:
    """Have a connection send at once, and end where the other host is cut off: after 15 s, idle or not."""
    tcp = socket.IPPROTO_TCP
    connection.setsockopt(tcp, socket.TCP_NODELAY, 1)
    # Without these a member waited a minute for bytes that could not come, which was all the time that its gang gives a
    # server to restart: probes end a silent connection, the user timeout one that sends.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(tcp, socket.TCP_KEEPIDLE, PROBE_S)
    connection.setsockopt(tcp, socket.TCP_KEEPINTVL, PROBE_S)
    connection.setsockopt(tcp, socket.TCP_KEEPCNT, PROBES)
    connection.setsockopt(tcp, socket.TCP_USER_TIMEOUT, 1000 * PROBE_S * (1 + PROBES))


def send_frame(connection: socket.socket, message: Message, payload: bytes | bytearray | memoryview = b"") -> None:
    """Send `message` with `payload`. Blocks for the timeout of the socket at most. Raises OSError."""
    header = encode(message)
    connection.sendall(_FRAME.pack(len(header), len(payload)) + header)
    if payload:
        connection.sendall(payload)


def receive_header(connection: socket.socket, kind: Any) -> tuple[Any, int]:
    """The next message of the union `kind`, and the bytes of the payload that follows it.

    Blocks as `send_frame`. Raises EOFError at the end of the connection, OSError, ProtocolError.
    """
    head = bytearray(_FRAME.size)
    receive_into(connection, memoryview(head))
    length, payload = _FRAME.unpack(head)
    if length > _MOST_HEADER_BYTES:
        raise ProtocolError(f"a header of {length} bytes was sent, and {_MOST_HEADER_BYTES} are allowed")
    header = bytearray(length)
    receive_into(connection, memoryview(header))
    return decode(bytes(header), kind), payload


def receive_into(connection: socket.socket, buffer: memoryview) -> None:
    """Fill `buffer`. Blocks as `send_frame`. Raises EOFError at the end of the connection, OSError."""
    # Received where it is used: Arrow Flight copies payloads, and reached less than half of this throughput.
    received = 0
    while received < len(buffer):
        count = connection.recv_into(buffer[received : received + _AT_ONCE])
        if not count:
            raise EOFError(f"the connection ended after {received} of {len(buffer)} bytes")
        received += count
