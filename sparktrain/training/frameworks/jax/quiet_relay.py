"""Keeps JAX's connection to its coordination service open, as far as JAX sees, when the service is gone.

The service is in the process of rank 0. A client that loses its connection ends its process, and so all members would
end with rank 0. A connection that only stays silent ends nothing: JAX waits for a heartbeat timeout, which a gang sets
longer than all other limits, and members learn of a loss by their agents.
"""

import socket
from contextlib import suppress
from functools import partial

from sparktrain.base.clock import SystemClock, pause
from sparktrain.base.threads import spawn

_CHUNK_BYTES = 2**16
_POLL_S = 0.01


class QuietRelay:
    """Passes the connections of this process on to a service. Its threads end with the process."""

    def __init__(self, address: str, port: int, timeout_s: float) -> None:
        """`timeout_s` is how long a connection waits for the service. Raises OSError."""
        self._service = (address, port)
        self._timeout_s = timeout_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        """Where JAX connects."""
        spawn(self._accept, "sparktrain-relay")

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            spawn(partial(self._serve, client), "sparktrain-relay")

    def _serve(self, client: socket.socket) -> None:
        service = self._connected()
        if service is None:
            return
        spawn(lambda: _pass_on(client, service), "sparktrain-relay")
        _pass_on(service, client)
        # The service is gone: the client learns nothing of it.

    def _connected(self) -> socket.socket | None:
        clock = SystemClock()
        until = clock.now() + self._timeout_s
        while clock.now() < until:
            with suppress(OSError):
                return socket.create_connection(self._service, self._timeout_s)
            pause(_POLL_S)
        return None


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Pass on all that comes, until one end is gone."""
    with suppress(OSError):
        source.settimeout(None)
        while content := source.recv(_CHUNK_BYTES):
            target.sendall(content)
