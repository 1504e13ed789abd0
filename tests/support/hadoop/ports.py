"""Ports for daemons, known before they start, and kept for them while they are down."""

import random
import socket
from contextlib import ExitStack
from pathlib import Path

HOST = "127.0.0.1"
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 1000


class Ports:
    """Free ports of this machine, which no other user of this class gets before `close`.

    They are outside of the range that the kernel gives to clients: it could give a client that tries to reach a daemon
    that is down the port of that daemon, and the client would connect to itself.
    """

    def __init__(self, host: str = HOST) -> None:
        """For daemons that listen on this address of the machine."""
        self._host = host
        self._reservations = ExitStack()

    def take(self) -> int:
        """One more port."""
        first, last = map(int, _EPHEMERAL.read_text().split())
        candidates = [port for port in range(10_000, 65_536) if not first <= port <= last]
        return next(filter(self._reserve, random.SystemRandom().sample(candidates, _TRIES)))

    def close(self) -> None:
        """Give all of them back."""
        self._reservations.close()

    def _reserve(self, port: int) -> bool:
        # A name that the kernel forgets when this process ends, in the namespace to which the ports belong too.
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0sparktrain-port-{port}")
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((self._host, port))
        except OSError:
            reservation.close()
            return False
        self._reservations.callback(reservation.close)
        return True
