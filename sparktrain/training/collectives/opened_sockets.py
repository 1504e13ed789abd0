"""The sockets that a library has opened in this process, and their end while the library waits for them."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

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


def shut_down(sockets: Sockets) -> None:
    """End the connections of `sockets` for both sides, and leave their descriptors to the library that has them.

    A call that is blocked in one of them ends at once with an error. Any thread may call it; it does not block.
    """
    for opened in sockets:
        with suppress(OSError), _duplicate(opened) as connection:
            connection.shutdown(socket.SHUT_RDWR)


def peers_of(sockets: Sockets) -> dict[tuple[int, str], str]:
    """The address of the peer of each of `sockets` that is connected. It does not block."""
    peers = {}
    for opened in sockets:
        with suppress(OSError), _duplicate(opened) as connection:
            peers[opened] = connection.getpeername()[0]
    return peers


def expect_answers(sockets: Sockets, timeout_s: float) -> None:
    """Break a connection if its peer acknowledges nothing for `timeout_s`: its host, or the network to it, is gone.

    The kernel of the peer acknowledges, also for a process that is stopped or has nothing to send: idle connections are
    probed each second (RFC 1122, section 4.2.3.6, and RFC 5482). 0 ends that. It does not block.
    """
    for opened in sockets:
        with suppress(OSError), _duplicate(opened) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(timeout_s * 1000))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(timeout_s > 0.0))


def is_answered(opened: tuple[int, str]) -> bool:
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
