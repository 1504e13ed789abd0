"""Values of the members in several rings of a gang stay apart, and those of earlier rings are dropped."""

from collections import deque

from sparktrain.state.topology import MemberAddress
from sparktrain.training.collectives.ring_exchange import RingExchange


class Pipe:
    """A clock and an exchange in one: time passes only while a call waits for the exchange."""

    def __init__(self, *coming: tuple[str, bytes]) -> None:
        self.time = 0.0
        self.coming = deque(coming)
        self.sent: list[str] = []

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        raise AssertionError("not asked for")

    def share(self, key: str, value: bytes) -> None:
        self.sent.append(key)

    def shared(self, timeout_s: float) -> tuple[str, bytes] | None:
        if self.coming:
            return self.coming.popleft()
        self.time += timeout_s
        return None

    def moved(self, rank: int) -> MemberAddress | None:
        return None


def test_a_later_ring_waits_for_a_slow_member() -> None:
    pipe = Pipe(("r1/here/2", b""), ("calls/1", b"old"), ("r1/1/scope", b"a"))
    exchange = RingExchange(pipe, 0, pipe)
    assert exchange.shared(1.0) == ("calls/1", b"old")
    assert exchange.shared(0.2) is None, "the others are in the next ring already"
    exchange.enter(1)
    assert [exchange.shared(1.0), exchange.shared(1.0)] == [("here/2", b""), ("1/scope", b"a")]


def test_values_of_an_earlier_ring_are_dropped() -> None:
    pipe = Pipe(("calls/1", b"old"), ("r1/here/1", b""), ("r2/here/1", b"new"))
    exchange = RingExchange(pipe, 2, pipe)
    assert exchange.shared(1.0) == ("here/1", b"new")
    assert exchange.shared(0.0) is None


def test_a_value_names_its_ring_but_in_the_first() -> None:
    pipe = Pipe()
    exchange = RingExchange(pipe, 0, pipe)
    exchange.share("here/0", b"")
    exchange.enter(3)
    exchange.share("here/0", b"")
    assert pipe.sent == ["here/0", "r3/here/0"]


def test_nobody_waits_for_a_value_of_a_ring_that_is_broken() -> None:
    pipe = Pipe()
    exchange = RingExchange(pipe, 1, pipe)
    exchange.leave(2)
    assert exchange.shared(30.0) is None
    assert pipe.time == 0.0
    exchange.enter(2)
    assert exchange.shared(1.0) is None
    assert pipe.time >= 1.0
