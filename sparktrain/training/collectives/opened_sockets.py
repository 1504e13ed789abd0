"""The sockets that a library has opened in this process, and their end while the library waits for them."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sparktrain.state.topology import Formation

Sockets = frozenset[tuple[int, str]]
"""Sockets by their descriptors and inodes."""

_FOLDER = "/proc/self/fd"
_TCP_INFO = struct.Struct("4B")
"""The first fields of Linux's `struct tcp_info`: state, congestion state, retransmits, and probes."""
_ESTABLISHED = 1


def open_sockets() -> Sockets:
    """The file descriptor and the inode of each socket that this process has open."""
    sockets = set()
    for name in os.listdir(_FOLDER):
        with suppress(OSError):  # closed meanwhile
            target = os.readlink(f"{_FOLDER}/{name}")
            if target.startswith("socket:"):
                sockets.add((int(name), target))
    return frozenset(sockets)


def without_port(sockets: Sockets, port: int) -> Sockets:
    """Those of `sockets` that are no connection from or to `port`."""
    return frozenset(opened for opened in sockets if port not in _ports(opened))


def _ports(opened: tuple[int, str]) -> set[object]:
    """The ports of both ends of an open socket over IP."""
    ends = []
    with suppress(OSError), _duplicate(opened) as connection:
        ends.append(connection.getsockname())
        ends.append(connection.getpeername())
    return {end[1] for end in ends if isinstance(end, tuple)}


class PeerConnections:
    """The connections of a library to the other members of a ring. Any thread may call it; nothing blocks."""

    def __init__(self, sockets: Sockets = frozenset()) -> None:
        self._sockets = sockets
        self._addresses: dict[tuple[int, str], str] = {}
        """Of the members at the other ends."""
        for opened in sockets:
            with suppress(OSError), _duplicate(opened) as connection:
                self._addresses[opened] = connection.getpeername()[0]

    def shut_down(self, how: int = socket.SHUT_RDWR) -> None:
        """End the connections for both sides, and leave their descriptors to the library that has them.

        With `socket.SHUT_RD` they end once the library has read to their end, and what it writes until then travels.
        A call that is blocked in one of them ends at once with an error. Sockets that listen stay as they are:
        PyTorch's Gloo ends the process when its listener fails.
        """
        for opened in self._sockets:
            with suppress(OSError), _duplicate(opened) as connection:
                if not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    connection.shutdown(how)

    @property
    def are_closed(self) -> bool:
        """Whether the library has closed all of them, having had some."""
        return bool(self._addresses) and not (self._addresses.keys() & open_sockets())

    def expect_answers(self, timeout_s: float) -> None:
        """Break a connection if its peer acknowledges nothing for `timeout_s`: the host, or the network to it, is gone.

        The kernel of the peer acknowledges, also for a process that is stopped or has nothing to send: idle connections
        are probed each second (RFC 1122, section 4.2.3.6, and RFC 5482). 0 ends that.
        """
        for opened in self._addresses:
            with suppress(OSError), _duplicate(opened) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(timeout_s * 1000))
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(timeout_s > 0.0))

    def silent_ranks(self, formation: Formation) -> list[int]:
        """Members on other hosts with connections that are closed, or acknowledge nothing."""
        silent = {address for opened, address in self._addresses.items() if not _is_answered(opened)}
        silent.discard(formation.mine.address)
        return [rank for rank, place in enumerate(formation.places) if place.address in silent]


def _is_answered(opened: tuple[int, str]) -> bool:
    """Whether a connection is open, and its peer has acknowledged what was sent lately."""
    try:
        with _duplicate(opened) as connection:
            state, _, retransmits, probes = _TCP_INFO.unpack(
                connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
            )
    except OSError:
        return False
    return state == _ESTABLISHED and not retransmits and not probes


@contextmanager
def _duplicate(opened: tuple[int, str]) -> Iterator[socket.socket]:
    """A descriptor of our own for a socket. Raises OSError where its owner has closed it."""
    descriptor, inode = opened
    duplicate = os.dup(descriptor)
    with socket.socket(fileno=duplicate) as connection:
        # Its owner may have closed the descriptor, and the process may have opened another file as that.
        if os.readlink(f"{_FOLDER}/{duplicate}") != inode:
            raise OSError(f"{inode} is closed")
        yield connection
