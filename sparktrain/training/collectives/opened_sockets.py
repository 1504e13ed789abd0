"""The sockets that a library has opened in this process, and their end while the library waits for them."""

import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from sparktrain.state.topology import Formation

Sockets = frozenset[tuple[int, str]]
"""Sockets by their descriptors and inodes."""

_FOLDER = "/proc/self/fd"
_TCP_INFO = struct.Struct("=4B52xI")
"""Fields of Linux's `struct tcp_info`: state, congestion state, retransmits, probes, and milliseconds since the last
acknowledgment."""
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
        return self._ranks_where(lambda opened: not _is_answered(opened), formation)

    def unanswered_ranks(self, formation: Formation, seconds: float) -> list[int]:
        """Members on other hosts with an open connection that has acknowledged nothing of what was sent for so long.

        The probes of `expect_answers` come each second: `seconds` is longer.
        """
        return self._ranks_where(lambda opened: _unanswered_s(opened) >= seconds, formation)

    def _ranks_where(self, matches: Callable[[tuple[int, str]], bool], formation: Formation) -> list[int]:
        addresses = {address for opened, address in self._addresses.items() if matches(opened)}
        addresses.discard(formation.mine.address)
        return [rank for rank, place in enumerate(formation.places) if place.address in addresses]


class _Answers(NamedTuple):
    """What the kernel knows of a connection."""

    is_open: bool
    repeats: int
    """What it sends again, and asks again, for it was not acknowledged."""
    answered_ms: int
    """Since the last acknowledgment."""


def _answers(opened: tuple[int, str]) -> _Answers | None:
    """None where the connection is gone."""
    try:
        with _duplicate(opened) as connection:
            state, _, retransmits, probes, answered_ms = _TCP_INFO.unpack(
                connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
            )
    except OSError:
        return None
    return _Answers(state == _ESTABLISHED, retransmits + probes, answered_ms)


def _is_answered(opened: tuple[int, str]) -> bool:
    """Whether a connection is open, and its peer has acknowledged what was sent lately."""
    answers = _answers(opened)
    return answers is not None and answers.is_open and not answers.repeats


def _unanswered_s(opened: tuple[int, str]) -> float:
    """For how long the peer of an open connection has acknowledged nothing, though something was sent."""
    answers = _answers(opened)
    return answers.answered_ms / 1000 if answers is not None and answers.is_open and answers.repeats else 0.0


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
