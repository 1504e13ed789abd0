"""Where the coordinator in the driver listens, and the addresses at which executors reach it."""

import socket
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address

from msgspec import Struct

from sparktrain.cluster.kubernetes_pods import KUBERNETES
from sparktrain.config.param_values import shown
from sparktrain.errors import SessionError

HOST_KEY = "spark.sparktrain.driver.host"
"""Address at which executors reach the driver, if it differs from Spark's own."""
PORT_KEY = "spark.sparktrain.driver.port"
"""Port on which the coordinator listens; 0 for any free one."""
THIS_MACHINE = "127.0.0.1"
"""The address on which only processes of this machine can connect."""
SPARK_HOST_KEY = "spark.driver.host"
_BIND_KEY = "spark.driver.bindAddress"
_POD_IP_KEY = "spark.kubernetes.executor.useDriverPodIP"
KEYS = (SPARK_HOST_KEY, _BIND_KEY, HOST_KEY, PORT_KEY)
"""The configuration keys from which the address follows, beside `spark.master`."""


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
    machine, when Spark's own executors cannot reach the driver, or when the port is not valid.
    """
    named = conf.get(HOST_KEY) or None
    of_spark = conf.get(SPARK_HOST_KEY)
    bind = conf.get(_BIND_KEY)
    in_pods = conf.get("spark.master", "").startswith(KUBERNETES)
    # With local[n] and local-cluster, no process of another machine has to reach the driver, the page or TensorBoard.
    if on_one_machine and named is None and bind is None:
        return Address(THIS_MACHINE, (THIS_MACHINE,), _port(conf))
    _check_reachable(of_spark, in_pods)
    # No pod resolves the name of another pod, or of a machine outside the cluster: addresses are all that leads there.
    own = (bind, *_addresses_here()) if in_pods else (socket.getfqdn(), socket.gethostname())
    hosts = [host for host in dict.fromkeys((named, of_spark, *own)) if host and not _is_wildcard(host)]
    local_hosts = [host for host in hosts if is_ours(host)]
    if bind is None and not local_hosts:
        raise SessionError(
            f"none of {', '.join(hosts)} is an address of this machine: set {HOST_KEY} to the one that executors "
            f"reach, and {_BIND_KEY} to the one to listen on"
        )
    if named is not None:
        return Address(bind or local_hosts[0], (named,), _port(conf))
    # Spark's own may be the address of a router or a container's host, which forwards connections.
    reachable = [*local_hosts, *(host for host in hosts if host == of_spark and host not in local_hosts)]
    return Address(bind or local_hosts[0], tuple(reachable or hosts), _port(conf))


def _check_reachable(of_spark: str | None, in_pods: bool) -> None:
    """Raises SessionError where executors would look for the driver on their own machine."""
    if of_spark is None or not _is_wildcard(of_spark):
        return
    problem = f"{SPARK_HOST_KEY} is {of_spark}, at which no executor reaches the driver"
    if not in_pods:
        raise SessionError(f"{problem}: set it to an address of this machine, and listen on all of them by {_BIND_KEY}")
    raise SessionError(
        f"{problem}: on Kubernetes Spark sets it to {_BIND_KEY}; leave that out, or set it to the address of the "
        f"driver's pod, or set {_POD_IP_KEY}=false, with which executors connect to the {SPARK_HOST_KEY} that you set"
    )


def _is_wildcard(host: str) -> bool:
    with suppress(ValueError):  # a name
        return ip_address(host.strip("[]")).is_unspecified
    return False


def _addresses_here() -> list[str]:
    """The addresses of this machine, or this pod, that its own name leads to."""
    with suppress(OSError):
        addresses = [
            str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
        ]
        return [address for address in addresses if not ip_address(address).is_loopback]
    return []


def bare_name(conf: Mapping[str, str]) -> str | None:
    """The name of the driver's machine that executors get, if it is one that no DNS has by itself."""
    host = conf.get(SPARK_HOST_KEY, "")
    return host if host and not set(".:") & set(host) else None


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
