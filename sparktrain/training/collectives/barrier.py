"""How members meet before a backend connects them: ports, a barrier, a listener, and an interface."""

import os
import socket
from collections.abc import Callable, Collection, Mapping
from math import ceil

from sparktrain.base.clock import Clock, SystemClock, pause
from sparktrain.errors import FormError
from sparktrain.state.topology import Formation, MemberAddress
from sparktrain.training.collectives.backend import Joining

ARRIVAL = "here/"
"""Prefix of the key by which a member reports that it has started to join; its rank follows."""
_POLL_S = 0.01
_NOTHING: Mapping[str, bytes] = {}


def wait_for_all(joining: Joining, clock: Clock, offers: Mapping[str, bytes] = _NOTHING) -> dict[str, bytes]:
    """Block until every member has started to join, at most `joining.timeout_s`; returns what else they have shared.

    That includes the `offers` of all others, by key. Raises FormError that names the missing members.
    """
    formation = joining.formation
    until = clock.now() + joining.timeout_s
    came = {formation.rank}
    shared: dict[str, bytes] = {}
    try:
        for key, value in offers.items():
            joining.exchange.share(key, value)
        # After the offers: values of a member keep their order.
        joining.exchange.share(f"{ARRIVAL}{formation.rank}", b"")
        while len(came) < formation.size:
            remaining_s = until - clock.now()
            pair = joining.exchange.shared(remaining_s) if remaining_s > 0 else None
            if pair is None:
                raise FormError(_missing(formation, came, joining.timeout_s))
            key, value = pair
            if key.startswith(ARRIVAL):
                came.add(int(key.removeprefix(ARRIVAL)))
            else:
                shared[key] = value
    except OSError as error:
        raise FormError(f"{this_member(formation)} lost its agent while it joined the ring: {error}") from error
    return shared


def await_listener(
    place: MemberAddress, timeout_s: float, is_left: Callable[[], bool] = lambda: False
) -> Exception | None:
    """Block until something listens at a member's place; returns why nothing does after `timeout_s`.

    Or once `is_left()`: the members form another ring meanwhile.
    """
    clock = SystemClock()
    until = clock.now() + timeout_s
    while True:
        try:
            socket.create_connection((place.address, place.port), min(1.0, timeout_s)).close()
            return None
        except OSError as error:
            if clock.now() >= until or is_left():
                return error
        pause(_POLL_S)


def this_member(formation: Formation) -> str:
    """The name of this member in messages."""
    return f"rank {formation.rank} on {formation.mine.host}"


def whole_seconds(seconds: float) -> int:
    """`seconds` rounded up, at least 1, for settings that take no fractions."""
    return max(1, ceil(seconds))


def _missing(formation: Formation, came: Collection[int], timeout_s: float) -> str:
    missing = [f"{rank} on {place.host}" for rank, place in enumerate(formation.places) if rank not in came]
    return (
        f"the ring of {formation.size} members could not be formed: after {timeout_s:g} s rank {', '.join(missing)} "
        "had not started to join; the log of that member shows what it waits for"
    )


class HeldPort:
    """A port of `address`, bound but not listened to, in a way that lets a second socket bind it too.

    TensorFlow's server binds with SO_REUSEPORT, so the port stays held until then. Raises OSError, also where another
    process has the port.
    """

    def __init__(self, address: str, number: int = 0) -> None:
        """`number` is the port; 0 takes a free one."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        if number:
            _check_free(family, address, number)
        self._sock = socket.socket(family)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._sock.bind((address, number))
        self.number: int = self._sock.getsockname()[1]

    def take(self) -> int:
        """A file descriptor of the bound socket, which belongs to the caller: no other process can bind the port."""
        return os.dup(self._sock.fileno())

    def release(self) -> None:
        """Release the port. A second call does nothing."""
        self._sock.close()


def _check_free(family: socket.AddressFamily, address: str, number: int) -> None:
    """Raise OSError where another process has the port: a socket with SO_REUSEPORT would share its connections.

    SO_REUSEADDR passes over what is left of connections of a process that has ended.
    """
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((address, number))


def interface_of(formation: Formation) -> str:
    """The network interface with this member's address: without a name, Gloo takes any, such as loopback.

    Raises FormError where no interface has it.
    """
    import psutil  # a member without a ring does without it

    address = formation.mine.address
    for name, addresses in psutil.net_if_addrs().items():
        if any(nic_address.address == address for nic_address in addresses):
            return name
    raise FormError(
        f"{this_member(formation)}: no network interface of this host has the address {address}; "
        "the executor's host name must resolve to an address of the host itself"
    )
