"""Addresses of a cluster: a block of the range that RFC 2544 keeps for tests, which no other cluster has."""

import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from tests.support.daemons import DaemonError

BLOCKS = 64
MAX_NODES = 5
_RANGE = IPv4Network("198.18.0.0/15")
_LINK = 0
_SERVICES = 1
_PODS = 2
"""The subnets of a block: of the nodes, of services, and from this one on of each node's pods."""


@dataclass(frozen=True)
class Block:
    """2,048 addresses, by its number from 0."""

    number: int

    @property
    def network(self) -> IPv4Network:
        """All of them."""
        return self._subnet(0).supernet(new_prefix=21)

    @property
    def services(self) -> IPv4Network:
        """Of the services; the first one is the API server's."""
        return self._subnet(_SERVICES)

    @property
    def api(self) -> IPv4Address:
        """Where the API server listens, with etcd and what else controls the cluster."""
        return self._subnet(_LINK)[1]

    @property
    def host(self) -> IPv4Address:
        """This machine's own, where pods reach a driver outside of the cluster."""
        return self._subnet(_LINK)[2]

    def node(self, number: int) -> IPv4Address:
        """Of a node, by its number from 0."""
        return self._subnet(_LINK)[10 + number]

    def pods(self, number: int) -> IPv4Network:
        """Of the pods on a node."""
        return self._subnet(_PODS + number)

    def _subnet(self, number: int) -> IPv4Network:
        first = int(_RANGE.network_address) + (self.number << 11) + (number << 8)
        return IPv4Network((first, 24))


def reserve() -> tuple[Block, socket.socket]:
    """A block that no other cluster has while a process holds the socket open. Raises DaemonError when none is left."""
    for number in range(BLOCKS):
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0sparktrain-kubernetes-{number}")  # a name that the kernel forgets with its holders
        except OSError:
            reservation.close()
        else:
            return Block(number), reservation
    raise DaemonError(f"{BLOCKS} clusters run on this machine, and there are no addresses for another: end one of them")
