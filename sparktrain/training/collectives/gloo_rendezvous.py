"""The key-value server that Gloo needs to find the other members, inside the member's own process.

Gloo speaks plain HTTP/1.0 without authentication. So its server listens on 127.0.0.1 during `hvd.init()`, and answers
only this process; the gang's exchange carries its values to the other members.
"""

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import TracebackType
from typing import Any

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.base.threads import spawn
from sparktrain.training.collectives.backend import Exchange

MAX_VALUE_BYTES = 64 * 1024
"""The largest value that the server takes; larger than any of Gloo's."""

# Horovod's own server binds all interfaces, and takes values of anyone: these would lead a ring to foreign peers.
_ADDRESS = "127.0.0.1"
_WAIT_S = 0.1
"""How long the server waits for a missing key before it answers that Gloo must ask again, which Gloo does 10 ms later:
six times for a ring, where it must ask."""
_REQUEST_TIMEOUT_S = 5.0


class Rendezvous:
    """The server, as a context manager. Its one thread owns the exchange within the context."""

    def __init__(
        self,
        rank: int,
        exchange: Exchange,
        shared: dict[str, bytes],
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_over`: the missing values never come. Then requests for them fail, and Gloo gives up after three."""
        self._is_over = is_over
        self._clock: Clock = SystemClock()
        self._rank = rank
        self._exchange = exchange
        self._values: dict[str, bytes] = {}
        self.heard: set[int] = {rank}
        """The ranks that have sent at least one value."""
        for key, value in shared.items():
            self._keep(key, value)

    def __enter__(self) -> "Rendezvous":
        # Each generation has a server of its own: values of an earlier one would lead to members that are gone.
        self._server = _Server(self)
        self._stopping = threading.Event()
        self._thread = spawn(self._serve, "sparktrain-rendezvous")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._server.server_close()

    @property
    def address(self) -> tuple[str, int]:
        """The address and port of the server, within the context."""
        return _ADDRESS, self._server.server_port

    def put(self, key: str, value: bytes) -> None:
        """Keep a value of Gloo, and send it to the other members; for the server's thread. Raises OSError."""
        self._values[key] = value
        self._exchange.share(f"{self._rank}{key}", value)

    def get(self, key: str) -> bytes | None:
        """The value that a member has put, or None; waits 0.1 s for it. For the server's thread. Raises OSError."""
        deadline = self._clock.now() + _WAIT_S
        while key not in self._values and (left_s := deadline - self._clock.now()) > 0.0:
            self._take(left_s)
            if key not in self._values and self._is_over():
                raise OSError(f"the members form a later ring, and {key} does not come")
        return self._values.get(key)

    def _serve(self) -> None:
        while not self._stopping.is_set():
            self._server.handle_request()

    def _take(self, timeout_s: float) -> None:
        """Store all values that have come; waits `timeout_s` for the first."""
        while (pair := self._exchange.shared(timeout_s)) is not None:
            self._keep(*pair)
            timeout_s = 0.0

    def _keep(self, key: str, value: bytes) -> None:
        rank, slash, suffix = key.partition("/")
        self.heard.add(int(rank))
        self._values[slash + suffix] = value


class StoreRendezvous(Rendezvous):
    """The same, with values in a store that all members can reach, in place of the gang's exchange."""

    def __init__(self, rank: int, store: Any) -> None:
        """`store` has `set`, `check` of a list of keys, and `get`, as those of PyTorch."""
        self._store = store
        self.heard = {rank}

    def put(self, key: str, value: bytes) -> None:
        """See base class."""
        self._store.set(key, value)

    def get(self, key: str) -> bytes | None:
        """See base class. Does not wait: Gloo asks again."""
        return bytes(self._store.get(key)) if self._store.check([key]) else None


class _Server(HTTPServer):
    """Takes one connection at a time: Gloo opens one for each request."""

    timeout = 0.02  # seconds until handle_request() returns

    def __init__(self, rendezvous: Rendezvous) -> None:
        super().__init__((_ADDRESS, 0), _Request)
        self.rendezvous = rendezvous

    def server_bind(self) -> None:
        """Bind without the name lookup of HTTPServer, which may take seconds."""
        socket_address = self.server_address
        self.socket.bind(socket_address)
        self.server_name = _ADDRESS
        self.server_port = self.socket.getsockname()[1]

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether the connection comes from this process; the server closes all others unread."""
        # Any user of the host can connect to the loopback address: a foreign value would lead the ring to a foreign
        # peer.
        return comes_from_here(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a request that broke off or an exchange that is gone: Gloo asks again until its own deadline."""


class _Request(BaseHTTPRequestHandler):
    """GET, PUT and DELETE of /scope/key."""

    timeout = _REQUEST_TIMEOUT_S
    server: _Server

    def do_GET(self) -> None:
        value = self.server.rendezvous.get(self.path)
        self._answer(404 if value is None else 200, value or b"")

    def do_PUT(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self._answer(411)
        elif int(length) > MAX_VALUE_BYTES:
            self._answer(413)
        else:
            self.server.rendezvous.put(self.path, self.rfile.read(int(length)))
            self._answer(200)

    def do_DELETE(self) -> None:
        self._answer(200)  # the keys end with the rendezvous

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def comes_from_here(connection: socket.socket) -> bool:
    """Whether the other end of a TCP connection over IPv4 loopback is a socket of this process."""
    inode = _inode(connection.getpeername(), connection.getsockname())
    return inode is not None and f"socket:[{inode}]" in _open_files()


def _inode(local: tuple[str, int], remote: tuple[str, int]) -> str | None:
    """The inode of the socket at `local` that is connected to `remote`."""
    endpoints = [_hexadecimal(local), _hexadecimal(remote)]
    with open("/proc/self/net/tcp", encoding="ascii") as table:
        for row in table:
            fields = row.split()
            if fields[1:3] == endpoints:
                return fields[9]
    return None


def _hexadecimal(address: tuple[str, int]) -> str:
    """`address` in the format of /proc/net/tcp: one number in the machine's byte order."""
    number = int.from_bytes(socket.inet_aton(address[0]), "little")
    return f"{number:08X}:{address[1]:04X}"


def _open_files() -> set[str]:
    targets = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile
            targets.add(os.readlink(f"/proc/self/fd/{number}"))
    return targets
