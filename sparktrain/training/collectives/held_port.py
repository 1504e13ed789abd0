"""Holds a port for a backend, from the report to the other members until the backend binds it."""

import socket


class HeldPort:
    """A free port of `address`, bound but not listened to, in a way that lets a second socket bind it too.

    TensorFlow's server binds with SO_REUSEPORT, so the port stays held until then. Raises OSError.
    """

    def __init__(self, address: str) -> None:
        self._sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._sock.bind((address, 0))
        self.number: int = self._sock.getsockname()[1]

    def release(self) -> None:
        """Release the port. A second call does nothing."""
        self._sock.close()
