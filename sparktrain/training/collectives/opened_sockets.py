"""The sockets that a library has opened in this process, and their end while the library waits for them."""

import os
import socket
from contextlib import suppress

_FOLDER = "/proc/self/fd"


def open_sockets() -> frozenset[tuple[int, str]]:
    """The file descriptor and the inode of each socket that this process has open."""
    sockets = set()
    for name in os.listdir(_FOLDER):
        with suppress(OSError):  # closed meanwhile
            target = os.readlink(f"{_FOLDER}/{name}")
            if target.startswith("socket:"):
                sockets.add((int(name), target))
    return frozenset(sockets)


def without_port(sockets: frozenset[tuple[int, str]], port: int) -> frozenset[tuple[int, str]]:
    """Those of `sockets` that are no connection from or to `port`."""
    return frozenset(entry for entry in sockets if port not in _ports(entry[0]))


def _ports(descriptor: int) -> set[object]:
    """The ports of both ends of an open socket over IP."""
    ends = []
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        ends.append(connection.getsockname())
        ends.append(connection.getpeername())
    return {end[1] for end in ends if isinstance(end, tuple)}


def shut_down(sockets: frozenset[tuple[int, str]]) -> None:
    """End the connections of `sockets` for both sides, and leave their descriptors to the library that has them.

    A call that is blocked in one of them ends at once with an error. Sockets that listen stay as they are: PyTorch's
    Gloo ends the process when its listener fails. Any thread may call it; it does not block.
    """
    for descriptor, inode in sockets:
        with suppress(OSError):  # closed by its owner
            duplicate = os.dup(descriptor)
            with socket.socket(fileno=duplicate) as connection:
                # Its owner may have closed the descriptor, and the process may have opened another file as that.
                is_same = os.readlink(f"{_FOLDER}/{duplicate}") == inode
                if is_same and not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    connection.shutdown(socket.SHUT_RDWR)
