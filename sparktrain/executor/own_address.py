"""Under which addresses other hosts reach this executor."""

import socket
from contextlib import suppress
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path


def executor_hosts(jvm: int | None) -> tuple[str, ...]:
    """The addresses of this host for others, the likeliest first; `jvm` is the process of Spark's executor, if any.

    May block on a lookup of names.
    """
    if name := _hostname_of(jvm):
        # The address comes before its name: other hosts may not resolve it.
        return tuple(dict.fromkeys(filter(None, (_address(name), name))))
    names = tuple(dict.fromkeys((socket.getfqdn(), socket.gethostname())))
    addresses = [address for address in map(_address, names) if address]
    reachable = [address for address in addresses if not ip_address(address).is_loopback]
    return tuple(dict.fromkeys((*(reachable or addresses), *names)))


def _address(name: str) -> str:
    """The address of a name; empty where it does not resolve."""
    with suppress(OSError):
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    return ""


def _hostname_of(jvm: int | None) -> str:
    """The name under which Spark itself reaches the executor: every cluster manager passes it on its command line."""
    if jvm is None:
        return ""
    try:
        words = Path(f"/proc/{jvm}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    return next((word for flag, word in pairwise(words) if flag == "--hostname"), "")
