"""Finds the network interface by which the other members of a gang reach this one."""

import psutil

from sparktrain.errors import FormError
from sparktrain.state.topology import Formation
from sparktrain.training.collectives import barrier


def interface_of(formation: Formation) -> str:
    """The network interface with this member's address: without a name, Gloo takes any, such as loopback.

    Raises FormError where no interface has it.
    """
    address = formation.mine.address
    for name, addresses in psutil.net_if_addrs().items():
        if any(nic_address.address == address for nic_address in addresses):
            return name
    raise FormError(
        f"{barrier.this_member(formation)}: no network interface of this host has the address {address}; "
        "the executor's host name must resolve to an address of the host itself"
    )
