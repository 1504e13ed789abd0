"""Places of connections without authentication: how many there are, who yields to whom, and who is ended."""

import socket
from collections.abc import Iterator

import pytest

from sparktrain.protocol.strangers import PRECEDENCE_S, StrangerPlaces
from tests.unit.driver.stored import HandClock

MOST, MOST_OF_ADDRESS, PATIENCE_S = 6, 4, 10.0


class Crowd:
    """Connections that strangers hold open."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.places = StrangerPlaces(self.clock, MOST, MOST_OF_ADDRESS, PATIENCE_S)
        self._pairs: list[tuple[socket.socket, socket.socket]] = []

    def enter(self, address: str) -> socket.socket | None:
        pair = socket.socketpair()
        self._pairs.append(pair)
        return pair[0] if self.places.enter(pair[0], address) else None

    def is_open(self, connection: socket.socket | None) -> bool:
        """Whether nothing has shut the connection down."""
        assert connection is not None
        connection.setblocking(False)
        try:
            return connection.recv(1) != b""
        except BlockingIOError:
            return True

    def close(self) -> None:
        for pair in self._pairs:
            for end in pair:
                end.close()


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    opened = Crowd()
    yield opened
    opened.close()


def test_an_address_has_few_places_and_other_addresses_have_more(crowd: Crowd) -> None:
    strangers = [crowd.enter("10.0.0.1") for _ in range(MOST_OF_ADDRESS + 1)]
    assert [stranger is not None for stranger in strangers] == [True] * MOST_OF_ADDRESS + [False]
    assert crowd.enter("10.0.0.2") is not None
    assert crowd.enter("::ffff:10.0.0.1") is None, "the same address, written for IPv6"


def test_a_new_peer_takes_the_place_of_the_oldest_of_its_address(crowd: Crowd) -> None:
    other = crowd.enter("10.0.0.2")
    strangers = [crowd.enter("10.0.0.1") for _ in range(MOST_OF_ADDRESS)]
    crowd.clock.at += PRECEDENCE_S
    newcomer = crowd.enter("10.0.0.1")
    assert [crowd.is_open(each) for each in (other, *strangers, newcomer)] == [True, False, True, True, True, True]


def test_of_all_addresses_the_oldest_yields(crowd: Crowd) -> None:
    strangers = [crowd.enter(f"10.0.0.{number}") for number in range(MOST)]
    assert crowd.enter("10.0.1.1") is None
    crowd.clock.at += PRECEDENCE_S
    assert crowd.enter("10.0.1.1") is not None
    assert [crowd.is_open(stranger) for stranger in strangers] == [False] + [True] * (MOST - 1)


def test_who_has_left_takes_no_place_and_is_not_ended(crowd: Crowd) -> None:
    members = [crowd.enter("10.0.0.1") for _ in range(MOST_OF_ADDRESS)]
    for member in members:
        assert member is not None
        crowd.places.leave(member)
        crowd.places.leave(member)
    assert crowd.enter("10.0.0.1") is not None
    crowd.clock.at += PATIENCE_S
    crowd.places.end_late()
    assert all(crowd.is_open(member) for member in members)


def test_time_runs_out_for_a_stranger_whatever_it_sends(crowd: Crowd) -> None:
    slow = crowd.enter("10.0.0.1")
    crowd.clock.at += PATIENCE_S - 1
    young = crowd.enter("10.0.0.1")
    crowd.places.end_late()
    assert crowd.is_open(slow)
    crowd.clock.at += 1
    crowd.places.end_late()
    assert (crowd.is_open(slow), crowd.is_open(young)) == (False, True)
