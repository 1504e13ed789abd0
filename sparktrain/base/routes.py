"""The way from this host to another one."""

import socket
from contextlib import suppress


def address_towards(host: str, port: int) -> str | None:
    """This host's address in the network that leads to another one; None where there is no way.

    May block on a lookup of names. Connecting a datagram socket chooses the route; nothing is sent.
    """
    with suppress(OSError):
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    return None
