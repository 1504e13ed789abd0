"""How members meet before a backend connects them: a barrier, its error for those that are missing, and a listener."""

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
