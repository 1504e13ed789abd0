"""Where the coordinator in the driver listens, and the addresses at which executors reach it."""

import socket
from collections.abc import Mapping

from msgspec import Struct

from sparktrain.config.param_values import shown
from sparktrain.errors import SessionError

HOST_KEY = "spark.sparktrain.driver.host"
"""Address at which executors reach the driver, if it differs from Spark's own."""
PORT_KEY = "spark.sparktrain.driver.port"
"""Port on which the coordinator listens; 0 for any free one."""
THIS_MACHINE = "127.0.0.1"
"""The address on which only processes of this machine can connect."""
KEYS = ("spark.driver.host", "spark.driver.bindAddress", HOST_KEY, PORT_KEY)
"""The configuration keys from which the address follows."""


class Address(Struct, frozen=True):
    """Where the coordinator listens, and where agents look for it."""

    bind: str
    hosts: tuple[str, ...]
    """The hosts that agents try, the likeliest first."""
    port: int

    @property
    def in_browsers(self) -> str:
        """The host in URLs that people open: this machine, where no other one can connect."""
        return "localhost" if self.bind.startswith("127.") else self.hosts[0]


def address_of(conf: Mapping[str, str], *, on_one_machine: bool = False) -> Address:
    """The address by the session's configuration, or this machine's name where Spark's driver runs elsewhere (Connect).

    Where all executors are on this machine it is the loopback address, unless the configuration names one to listen on
    (`spark.driver.host` does not count: Spark itself sets it). Raises SessionError when no host is an address of this
    machine, or the port is not valid.
    """
    named = conf.get(HOST_KEY) or None
    of_spark = conf.get("spark.driver.host")
    bind = conf.get("spark.driver.bindAddress")
    # With local[n] and local-cluster, no process of another machine has to reach the driver, the page or TensorBoard.
    if on_one_machine and named is None and bind is None:
        return Address(THIS_MACHINE, (THIS_MACHINE,), _port(conf))
    hosts = [host for host in dict.fromkeys((named, of_spark, socket.getfqdn(), socket.gethostname())) if host]
    local_hosts = [host for host in hosts if is_ours(host)]
    if bind is None and not local_hosts:
        raise SessionError(
            f"none of {', '.join(hosts)} is an address of this machine: set {HOST_KEY} to the one that executors "
            f"reach, and spark.driver.bindAddress to the one to listen on"
        )
    if named is not None:
        return Address(bind or local_hosts[0], (named,), _port(conf))
    # Spark's own may be the address of a router or a container's host, which forwards connections.
    reachable = [*local_hosts, *(host for host in hosts if host == of_spark and host not in local_hosts)]
    return Address(bind or local_hosts[0], tuple(reachable or hosts), _port(conf))


def _port(conf: Mapping[str, str]) -> int:
    port = conf.get(PORT_KEY, "0").strip()
    if not port.isdecimal() or int(port) >= 2**16:
        raise SessionError(f"{PORT_KEY} ({shown(port)}) must be a port: a number below 65536, or 0 for any free one")
    return int(port)


def is_ours(host: str) -> bool:
    """Whether this machine can listen on `host`."""
    try:
        with socket.socket() as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True
