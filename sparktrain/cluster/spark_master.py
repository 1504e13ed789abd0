"""The master of a session: whether `spark-submit` has chosen it, and whether it can be reached.

Spark itself tries to reach one for a minute, and then reports a stopped context.
"""

import os
import re
import socket
from collections.abc import Callable

from sparktrain.errors import SessionError

CONNECT_S = 5.0
"""The timeout for one address."""
_PORTS = {"spark": 7077, "k8s": 443}
_HOST_AND_PORT = re.compile(r"(?:https?://)?(?P<host>\[[^\]]+\]|[^:/\[\]]+)(?::(?P<port>\d+))?/?")


def is_submitted() -> bool:
    """Whether `spark-submit` has started this process and provides its session."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def check_reachable(master: str, connect: Callable[[str, int], None] | None = None) -> None:
    """Raises SessionError when no address of `master` can be connected to. Blocks, for some seconds at most.

    Local masters and YARN have no address here.
    """
    scheme, marked, addresses = master.partition("://")
    if not marked or scheme not in _PORTS:
        return
    problems = []
    for place in addresses.split(","):
        match = _HOST_AND_PORT.fullmatch(place)
        if match is None:
            raise SessionError(f"{master} is not a valid master: write {scheme}://HOST:{_PORTS[scheme]}")
        try:
            (connect or _connect)(match["host"].strip("[]"), int(match["port"] or _PORTS[scheme]))
            return
        except socket.gaierror:
            problems.append(f"the host name {match['host']!r} is unknown on this machine")
        except OSError as error:
            problems.append(f"{place}: {error.strerror or error}")
    raise SessionError(
        f"the master {master} cannot be reached: {'; '.join(problems)}; correct --master, or start Spark there"
    )


def _connect(host: str, port: int) -> None:
    socket.create_connection((host, port), CONNECT_S).close()
