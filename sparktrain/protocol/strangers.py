"""Places for connections without authentication, for servers that have a thread for each connection.

The coordinator's gate has the same rules in its event loop: see `protocol/gate`.
"""

import socket
import threading
from contextlib import suppress
from typing import NamedTuple

from sparktrain.base.clock import Clock
from sparktrain.protocol.gate import network_of

PRECEDENCE_S = 0.25
"""A stranger of this age makes room for a newer one: honest peers send all that they have to within milliseconds."""


class _Stranger(NamedTuple):
    connection: socket.socket
    network: str
    since: float


class StrangerPlaces:
    """Counts strangers, and ends those that stay for too long. Any thread may call it; nothing blocks."""

    def __init__(self, clock: Clock, most: int, most_of_address: int, patience_s: float) -> None:
        """`most` strangers at a time, `most_of_address` of one address or IPv6 network; each for `patience_s`."""
        self._clock = clock
        self._most = most
        self._most_of_address = most_of_address
        self._patience_s = patience_s
        self._strangers: dict[int, _Stranger] = {}
        """By the identity of the connection, oldest first."""
        self._lock = threading.Lock()

    def enter(self, connection: socket.socket, address: str) -> bool:
        """Take a place for `connection`, if need be that of an older stranger, which is shut down.

        Returns False where there is no room: the caller closes the connection.
        """
        network = network_of(address)
        with self._lock:
            of_network = [stranger for stranger in self._strangers.values() if stranger.network == network]
            if len(of_network) >= self._most_of_address:
                # 3,000 idle connections once were as many threads of a training process.
                admitted = self._replace(of_network[0])
            elif len(self._strangers) >= self._most:
                admitted = self._replace(next(iter(self._strangers.values())))
            else:
                admitted = True
            if admitted:
                self._strangers[id(connection)] = _Stranger(connection, network, self._clock.now())
            return admitted

    def leave(self, connection: socket.socket) -> None:
        """`connection` has authenticated, or has ended. A second call does nothing."""
        with self._lock:
            self._strangers.pop(id(connection), None)

    def count(self) -> int:
        """How many strangers there are."""
        with self._lock:
            return len(self._strangers)

    def end_late(self) -> None:
        """Shut down strangers that have used up their time: one that sends a byte now and then is never silent."""
        with self._lock:
            limit = self._clock.now() - self._patience_s
            for stranger in [stranger for stranger in self._strangers.values() if stranger.since <= limit]:
                self._end(stranger)

    def _replace(self, stranger: _Stranger) -> bool:
        if self._clock.now() < stranger.since + PRECEDENCE_S:
            return False
        self._end(stranger)
        return True

    def _end(self, stranger: _Stranger) -> None:
        """Wake the thread that reads from the connection; that thread closes it."""
        del self._strangers[id(stranger.connection)]
        with suppress(OSError):
            # Not SSLSocket.shutdown, which takes the TLS state away from the thread that shakes hands.
            socket.socket.shutdown(stranger.connection, socket.SHUT_RDWR)
