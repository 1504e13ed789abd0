"""Holds a port for a backend, from the report to the other members until the backend binds it."""

import os
import socket


class HeldPort:
    """A port of `address`, bound but not listened to, in a way that lets a second socket bind it too.

    TensorFlow's server binds with SO_REUSEPORT, so the port stays held until then. Raises OSError, also where another
    process has the port.
    """

    def __init__(self, address: str, number: int = 0) -> None:
        """`number` is the port; 0 takes a free one."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        if number:
            _check_free(family, address, number)
        self._sock = socket.socket(family)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._sock.bind((address, number))
        self.number: int = self._sock.getsockname()[1]

    def take(self) -> int:
        """A file descriptor of the bound socket, which belongs to the caller: no other process can bind the port."""
        return os.dup(self._sock.fileno())

    def release(self) -> None:
        """Release the port. A second call does nothing."""
        self._sock.close()


def _check_free(family: socket.AddressFamily, address: str, number: int) -> None:
    """Raise OSError where another process has the port: a socket with SO_REUSEPORT would share its connections.

    SO_REUSEADDR passes over what is left of connections of a process that has ended.
    """
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((address, number))
