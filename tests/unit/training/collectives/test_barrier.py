"""Members wait for each other before a backend connects them; an error names the missing ones."""

from collections import deque

import pytest

from sparktrain.config.gang_spec import Role
from sparktrain.errors import FormError, RingError
from sparktrain.state.topology import Formation, MemberAddress
from sparktrain.training.collectives.backend import Joining
from sparktrain.training.collectives.barrier import wait_for_all
from sparktrain.training.collectives.ring_errors import is_ring_error

PLACES = tuple(MemberAddress(host, "10.0.0.1", 4000, Role.WORKER) for host in ("one", "two", "three"))


class Hand:
    """A clock and an exchange in one: time passes only while a call waits for the exchange."""

    def __init__(self, *coming: tuple[str, bytes]) -> None:
        self.time = 0.0
        self.coming = deque(coming)
        self.sent: list[str] = []

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        raise AssertionError("not asked for")

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("not asked for")

    def share(self, key: str, value: bytes) -> None:
        self.sent.append(key)

    def shared(self, timeout_s: float) -> tuple[str, bytes] | None:
        if self.coming:
            self.time += 0.25
            return self.coming.popleft()
        self.time += timeout_s
        return None


def wait(hand: Hand, timeout_s: float = 5.0) -> dict[str, bytes]:
    return wait_for_all(Joining(Formation(1, PLACES), hand, lambda: None, timeout_s), hand)


def test_returns_when_all_have_started_with_the_other_shared_values() -> None:
    hand = Hand(("here/2", b""), ("2/global/key", b"value"), ("here/0", b""), ("0/later", b""))

    assert wait(hand) == {"2/global/key": b"value"}
    assert hand.sent == ["here/1"]
    assert len(hand.coming) == 1


def test_offers_are_there_before_the_word_that_this_member_is() -> None:
    hand = Hand(("gpu/2", b"b"), ("here/2", b""), ("here/0", b""))
    joining = Joining(Formation(1, PLACES), hand, lambda: None, 5.0)
    assert wait_for_all(joining, hand, {"gpu/1": b"a"}) == {"gpu/2": b"b"}
    assert hand.sent == ["gpu/1", "here/1"]


def test_names_the_missing_members() -> None:
    with pytest.raises(FormError, match=r"of 3 members .* after 5 s rank 2 on three had not started") as raised:
        wait(Hand(("here/0", b"")))

    assert "rank 0" not in str(raised.value)


def test_the_timeout_holds_while_others_keep_sharing() -> None:
    hand = Hand(*[("0/key", b"")] * 100)

    with pytest.raises(FormError, match="rank 0 on one, 2 on three"):
        wait(hand)
    assert hand.time == 5.0


def test_a_lost_agent_is_a_form_error() -> None:
    hand = Hand()
    hand.share = lambda key, value: (_ for _ in ()).throw(BrokenPipeError("closed"))  # type: ignore[method-assign]

    with pytest.raises(FormError, match="rank 1 on two lost its agent"):
        wait(hand)


def test_a_ring_error_is_found_among_causes() -> None:
    try:
        try:
            raise RingError("a peer is gone")
        except RingError as error:
            raise ValueError("of a user's wrapper") from error
    except ValueError as error:
        wrapped = error

    assert is_ring_error(wrapped)
    assert is_ring_error(FormError("not formed"))
    assert not is_ring_error(ValueError("Collective ops is aborted by"))
