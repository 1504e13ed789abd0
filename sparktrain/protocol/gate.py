"""The proxy in front of the coordinator's gRPC server: it limits unauthenticated peers, and forwards bytes unread.

gRPC accepts every connection and has no limit for them: idle ones would use up the driver's descriptors. So the gate
owns the port. It connects each peer with the server's socket, which is in a folder for this user alone. TLS stays
between peer and server; a peer is a stranger until the server has authenticated it.

One thread serves all connections. A new peer becomes a stranger where there is room: 64 at a time, 8 of one network.
Where there is none, a stranger that is silent for 0.1 s or older than 2 s makes room; else the new peer waits in the
line of its network, where those that have sent something come first. `admit` is the server's word that a peer has
proved itself: it counts no longer, and has no deadline. The invariant: whatever strangers do, a peer of the run gets
in within seconds, and the process keeps descriptors for its journal. Deadlines are those of strangers, of waiting
peers, and of connections that one side has ended; all are checked ten times a second, only while there are some.
"""

import errno
import os
import resource
import selectors
import socket
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.base.threads import spawn
from sparktrain.protocol.splice import Splice
from sparktrain.store.held_folders import HeldFolder, hold, tidy

STRANGERS = 64
"""Limit of peers at a time that the server has not authenticated."""
STRANGERS_OF_ADDRESS = 8
"""The same for one address, or for one IPv6 network of 64 bits."""
SILENCE_S = 0.1
"""A stranger that has sent nothing for so long makes room for a newer one: peers of the run send first."""
PRECEDENCE_S = 2.0
"""So does a stranger of this age: a handshake takes milliseconds."""
WAITING_OF_ADDRESS = 1024
"""Limit of connections of one address that wait to be strangers: all agents of a large host come at once."""
RESERVE = 256
"""Descriptors of the process that connections leave alone, such as for the journal."""
DESCRIPTORS = 65_536
"""The soft limit of descriptors is raised to this, where the hard one allows it."""

DRAIN_S = 0.5
"""How long a closing gate still forwards what the server sent before it stopped."""
CLOSE_TIMEOUT_S = 2.0

_LOOK_S = 0.1
_BACKLOG = 1024
_PATH_BYTES = 90
"""A Unix socket's path may have 107 bytes."""


class _Waiting(NamedTuple):
    """An accepted connection that the server does not see yet."""

    peer: socket.socket
    address: tuple[str, int]
    since: float


class Gate:
    """Listening TCP sockets, and a thread that serves them."""

    def __init__(
        self,
        listening: Sequence[socket.socket],
        patience_s: float,
        clock: Clock | None = None,
        descriptors: int | None = None,
        reserve: int = RESERVE,
    ) -> None:
        """The gate owns `listening` from now on; a stranger may stay for `patience_s` seconds. Connections leave
        `reserve` of the process's `descriptors` alone; None for as many as the hard limit allows."""
        self._listening = tuple(listening)
        self._patience_s = patience_s
        self._clock = clock or SystemClock()
        self._folder = _private_folder()
        self.target = str(self._folder.path / "server")
        """Path of the Unix socket where the server must listen before `open`."""
        self._descriptors = raise_descriptor_limit() if descriptors is None else descriptors
        self._reserve = reserve
        self._spare: list[int] = []
        """A descriptor to give up when the process has no other."""
        self._keep_spare()
        self._splices: dict[str, Splice] = {}
        """All connections, by the name under which the server knows the peer."""
        self._timed: dict[str, Splice] = {}
        """Connections with a deadline, oldest first: strangers, and those that are ending."""
        self._waiting: dict[str, deque[_Waiting]] = {}
        """Accepted connections that the server does not see yet, by network, oldest first."""
        self._connection_count = 0
        self._ends_at: float | None = None
        """Once it closes: when it stops forwarding."""
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._opened = False
        self._ended = threading.Event()

    # ---- from any thread

    def open(self) -> None:
        """Accept connections from now on; the server must listen at `target`."""
        for listening in self._listening:
            listening.setblocking(False)
            self._selector.register(listening, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._opened = True
        spawn(self._serve, "sparktrain-gate")

    def admit(self, name: str) -> str:
        """The server has authenticated the peer `name`: returns its address, such as `10.0.0.1:4040`."""
        splice = self._splices.get(name)
        if splice is None:
            return name
        splice.admitted = True
        return splice.peer

    def close(self) -> None:
        """Refuse new connections, forward what the server sent last, and close all. Blocks for a moment."""
        if not self._opened and not self._ended.is_set():
            self._end()
        elif not self._ended.is_set():
            self._wake.send(b"\0")
            self._ended.wait(CLOSE_TIMEOUT_S)

    # ---- in the gate's thread

    def _serve(self) -> None:
        try:
            while self._ends_at is None or (self._splices and self._clock.now() < self._ends_at):
                # Deadlines are checked only while some connection has one.
                timed = self._timed or self._waiting or self._ends_at is not None
                for key, events in self._selector.select(_LOOK_S if timed else None):
                    if key.fileobj is self._woken:
                        self._refuse()
                    elif key.fileobj in self._listening:
                        self._accept(key.fileobj)
                    elif not key.data.over:
                        self._move(key.data, key.fileobj, events)
                self._look()
        finally:
            self._end()

    def _refuse(self) -> None:
        """The server has stopped: accept no more connections, and forward what it sent last."""
        self._ends_at = self._clock.now() + DRAIN_S
        for sock in (self._woken, *self._listening):
            self._selector.unregister(sock)
            sock.close()
        for splice in list(self._splices.values()):
            if not splice.admitted:
                self._drop(splice)
        self._send_away()

    def _send_away(self) -> None:
        for line in self._waiting.values():
            for connection in line:
                connection.peer.close()
        self._waiting.clear()

    def _move(self, splice: Splice, ready: Any, events: int) -> None:
        splice.move(ready, events)
        if splice.over:
            self._drop(splice)
        elif splice.ending and splice.admitted:
            self._timed[splice.name] = splice

    def _look(self) -> None:
        """Drop connections past their deadline, and let those in that wait."""
        now = self._clock.now()
        for splice in list(self._timed.values()):
            if splice.admitted and not splice.ending:
                del self._timed[splice.name]
            elif now >= splice.deadline:
                self._drop(splice)
        for network in list(self._waiting):
            self._let_in(network, now)

    def _let_in(self, network: str, now: float) -> None:
        """Connect waiting peers of `network` as long as there is room, those first that have sent something.

        End those that have waited for too long.
        """
        line = self._waiting[network]
        while line and now >= line[0].since + self._patience_s:
            line.popleft().peer.close()
        # Agents of one address once retried into each other until they gave up. In the line those that have spoken come
        # first, and the others cost the server no handshake.
        for connection in sorted(line, key=lambda candidate: not _has_spoken(candidate.peer)):
            if not self._has_room(network):
                break
            line.remove(connection)
            self._connect(connection.peer, connection.address)
        if not line:
            del self._waiting[network]

    def _drop(self, splice: Splice) -> None:
        del self._splices[splice.name]
        self._timed.pop(splice.name, None)
        splice.close()

    def _accept(self, listening: Any) -> None:
        if not self._spare:
            self._keep_spare()  # another thread was faster when the last one was given up
        while True:
            try:
                peer, address = listening.accept()
            except OSError as error:
                # Without a descriptor the connection stays in the kernel's queue, and select() would report it forever.
                if error.errno in (errno.EMFILE, errno.ENFILE) and self._shed(listening):
                    continue
                return  # no more connections wait
            if peer.fileno() >= self._descriptors - min(self._reserve, self._descriptors // 4):
                peer.close()  # the system gives the lowest free number: all below are taken
            else:
                self._receive(peer, address)

    def _receive(self, peer: socket.socket, address: tuple[str, int]) -> None:
        """Connect a new peer with the server, or have it wait behind others of its network."""
        network = network_of(address[0])
        line = self._waiting.get(network)
        if not line and self._has_room(network):
            self._connect(peer, address)
        # Cutting a peer costs it a retry, so the limit is high: a thousand agents may come from one address at once.
        elif line is not None and len(line) >= WAITING_OF_ADDRESS:
            peer.close()
        else:
            self._waiting.setdefault(network, deque()).append(_Waiting(peer, address, self._clock.now()))

    def _shed(self, listening: Any) -> bool:
        """Out of descriptors: close the first waiting connection, with the help of the spare one."""
        if not self._spare:
            return False
        os.close(self._spare.pop())
        try:
            listening.accept()[0].close()
            return True
        except OSError:
            return False
        finally:
            self._keep_spare()

    def _keep_spare(self) -> None:
        with suppress(OSError):
            self._spare.append(os.open(os.devnull, os.O_RDONLY))

    def _has_room(self, network: str) -> bool:
        """Whether one more stranger of `network` may connect; an older one may be dropped for it."""
        return self._makes_room(STRANGERS_OF_ADDRESS, network) and self._makes_room(STRANGERS, None)

    def _makes_room(self, most: int, network: str | None) -> bool:
        of_all = (peer for peer in self._timed.values() if not peer.admitted)
        strangers = [peer for peer in of_all if network in (None, peer.network)]
        if len(strangers) < most:
            return True
        now = self._clock.now()
        yielding = (peer for peer in strangers if now >= peer.started + (PRECEDENCE_S if peer.spoke else SILENCE_S))
        if (oldest := next(yielding, None)) is None:
            return False
        # Newer strangers take over from older ones: slow ones that stay must not keep agents out.
        self._drop(oldest)
        return True

    def _connect(self, peer: socket.socket, address: tuple[str, int]) -> None:
        self._connection_count += 1
        path = str(self._folder.path / str(self._connection_count))
        try:
            inner = socket.socket(socket.AF_UNIX)
        except OSError:
            peer.close()
            return
        splice = Splice(f"unix:{path}", peer, inner, self._selector, self._clock)
        splice.peer = shown(address)
        splice.network = network_of(address[0])
        splice.deadline = splice.started + self._patience_s
        # Before the server sees the peer, and may ask for it.
        self._splices[splice.name] = self._timed[splice.name] = splice
        try:
            splice.connect(path, self.target)
        except OSError:
            self._drop(splice)

    def _end(self) -> None:
        for splice in list(self._splices.values()):
            self._drop(splice)
        self._send_away()
        self._selector.close()
        for sock in (*self._listening, self._wake, self._woken):
            sock.close()
        for spare in self._spare:
            os.close(spare)
        self._folder.close()
        self._ended.set()


def _has_spoken(peer: socket.socket) -> bool:
    """Whether the peer has sent something, or has ended the connection."""
    try:
        peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def listen(host: str, port: int) -> list[socket.socket]:
    """TCP sockets that listen at `port` of the addresses of `host` that are this machine's, and nowhere else.

    Port 0 is any free port of the first address. Raises OSError when it can listen at none of them.
    """
    sockets: list[socket.socket] = []
    problems: dict[str, None] = {}
    for family, kind, protocol, _, address in dict.fromkeys(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)):
        chosen = sockets[0].getsockname()[1] if sockets else port
        try:
            sockets.append(_listening(socket.socket(family, kind, protocol), (address[0], chosen, *address[2:])))
        except OSError as error:
            problems[str(error)] = None
    if not sockets:
        raise OSError("; ".join(problems))
    return sockets


def _listening(listener: socket.socket, address: tuple[Any, ...]) -> socket.socket:
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listener.family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def raise_descriptor_limit() -> int:
    """Raise the process's soft limit of descriptors, which is often 1,024, as far as is allowed; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return DESCRIPTORS
    limit = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft < limit:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            return limit
    return soft


def network_of(address: str) -> str:
    """What an address counts as: itself, or its IPv6 network, in which one host may have any number of addresses."""
    ip = ip_address(address.partition("%")[0])
    if not isinstance(ip, IPv6Address):
        return str(ip)
    return str(ip.ipv4_mapped or ip.packed[:8].hex())


def shown(address: tuple[str, int]) -> str:
    """Host and port, for display."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _private_folder() -> HeldFolder:
    """A new folder for this user alone, with a path that is short enough for sockets.

    Those that killed processes have left beside it are removed meanwhile.
    """
    folder = hold("gate")
    if len(os.fsencode(folder.path)) > _PATH_BYTES:
        folder.close()
        folder = hold("gate", "/tmp")
    root = str(folder.path.parent)
    spawn(lambda: tidy(root), "sparktrain-tidy")
    return folder
