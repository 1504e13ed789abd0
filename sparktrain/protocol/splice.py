"""Two connected sockets: bytes that one receives are sent to the other. For `protocol/gate`."""

import math
import os
import selectors
import socket
from contextlib import suppress
from typing import Any

from sparktrain.base.clock import Clock

LINGER_S = 10.0
"""How long a peer may still receive, and close its end, once the server has closed its own."""

_CHUNK_BYTES = 256 * 1024
_READ = selectors.EVENT_READ
_WRITE = selectors.EVENT_WRITE


class Splice:
    """One peer's connection, and the connection with the server. All methods belong to the gate's thread."""

    def __init__(self, name: str, peer: socket.socket, server: socket.socket, selector: Any, clock: Clock) -> None:
        self.name = name
        self.peer = ""
        """Its address, for display."""
        self.network = ""
        """What it counts as, see `gate.network_of`."""
        self.admitted = False
        """The server has authenticated it."""
        self.spoke = False
        """The peer has sent something."""
        self.started = clock.now()
        self.deadline = math.inf
        """When it is closed, unless it is admitted and neither side has ended."""
        self.ending = False
        """One side has ended."""
        self.over = False
        """Both directions have ended."""
        self._selector = selector
        self._clock = clock
        self._opposites = {peer: server, server: peer}
        self._outer = peer
        self._server = server
        self._unsent = {peer: memoryview(b""), server: memoryview(b"")}
        """Bytes to send, by destination. While there are some, no more are read for it."""
        self._ended: set[socket.socket] = set()
        """Sockets that have sent all."""
        self._lost: socket.socket | None = None
        """The server's connection, once it is broken: what the peer still sends is dropped, so that it can receive
        what was sent before."""

    def connect(self, path: str, target: str) -> None:
        """Connect to the server at `target`, which sees `path` as the name of this end. Raises OSError."""
        self._server.setblocking(False)
        self._server.bind(path)
        self._server.connect(target)
        # The server has the name from the connection; the file itself has no further use.
        os.unlink(path)
        self._outer.setblocking(False)
        self._outer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for sock in self._opposites:
            self._selector.register(sock, _READ, self)

    def move(self, ready: Any, events: int) -> None:
        """Forward the bytes that can be forwarded."""
        if events & _WRITE:
            self._send_to(ready)
        if events & _READ and not self.over:
            try:
                self._receive(ready)
            except BlockingIOError:
                pass
            except OSError:
                self._end_by_error(ready)
        self._watch()

    def close(self) -> None:
        """Close both sockets."""
        self.over = True
        for sock in self._opposites:
            with suppress(KeyError, ValueError):
                self._selector.unregister(sock)
            sock.close()

    def _receive(self, source: socket.socket) -> None:
        data = source.recv(_CHUNK_BYTES)
        self.spoke = self.spoke or source is self._outer
        opposite = self._opposites[source]
        if not data:
            self._end(source)
        elif opposite is not self._lost:
            self._unsent[opposite] = memoryview(data)
            self._send_to(opposite)

    def _send_to(self, destination: socket.socket) -> None:
        try:
            self._send(destination)
        except BlockingIOError:
            pass
        except OSError:
            self._stop_sending(destination)

    def _send(self, destination: socket.socket) -> None:
        unsent = self._unsent[destination]
        self._unsent[destination] = unsent[destination.send(unsent) :]
        if not self._unsent[destination] and self._opposites[destination] in self._ended:
            self._send_end(destination)

    def _end(self, source: socket.socket) -> None:
        """`source` has sent all."""
        self._ended.add(source)
        if not self.ending:
            linger = self._clock.now() + LINGER_S
            self.ending = True
            self.deadline = linger if self.admitted else min(linger, self.deadline)
        if not self._unsent[self._opposites[source]]:
            self._send_end(self._opposites[source])
        self.over = self.over or len(self._ended) == len(self._opposites)

    def _send_end(self, destination: socket.socket) -> None:
        with suppress(OSError):
            destination.shutdown(socket.SHUT_WR)

    def _stop_sending(self, destination: socket.socket) -> None:
        """Nothing can be sent to a connection. The peer's ends both; the server may have sent bytes that wait here."""
        if destination is self._outer:
            self.over = True
        else:
            # Bytes of the coordinator that wait here have the reason of its end, and sometimes a complete answer: a
            # failed write towards it must not drop them.
            self._lost = destination
            self._unsent[destination] = memoryview(b"")

    def _end_by_error(self, source: socket.socket) -> None:
        """A connection broke, and all that it had sent has been read: see `_stop_sending`."""
        self._stop_sending(source)
        if not self.over:
            self._end(source)

    def _watch(self) -> None:
        """Wait for the next bytes that can be forwarded."""
        if self.over:
            return
        for sock, opposite in self._opposites.items():
            # No more is read than the other side takes: a slow reader costs one chunk of memory, and TCP holds the
            # sender back.
            reads = sock not in self._ended and not self._unsent[opposite]
            events = _READ * reads | _WRITE * bool(self._unsent[sock])
            watched = self._selector.get_map().get(sock)
            if watched is None and events:
                self._selector.register(sock, events, self)
            elif watched is not None and not events:
                self._selector.unregister(sock)
            elif watched is not None and watched.events != events:
                self._selector.modify(sock, events, self)
