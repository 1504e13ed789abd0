"""Members meet before their ring forms, and those that do not come are named."""

from collections import deque

import pytest

from sparktrain.config.gang_spec import Role
from sparktrain.errors import FormError, RingError
from sparktrain.state.topology import Formation, MemberAddress
from sparktrain.training.collectives.backend import Joining
from sparktrain.training.collectives.barrier import meet
from sparktrain.training.collectives.ring_errors import is_ring_error

PLACES = tuple(MemberAddress(host, "10.0.0.1", 4000, Role.WORKER) for host in ("one", "two", "three"))


class Hand:
    """A clock and an exchange in one: time passes only while the exchange is waited for."""

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


def met(hand: Hand, timeout_s: float = 5.0) -> dict[str, bytes]:
    return meet(Joining(Formation(1, PLACES), hand, lambda: None, timeout_s), hand)


def test_returns_when_all_have_come_with_what_else_was_shared() -> None:
    hand = Hand(("here/2", b""), ("2/global/key", b"value"), ("here/0", b""), ("0/later", b""))

    assert met(hand) == {"2/global/key": b"value"}
    assert hand.sent == ["here/1"]
    assert len(hand.coming) == 1


def test_names_who_did_not_come() -> None:
    with pytest.raises(FormError, match=r"of 3 members .* after 5 s rank 2 on three had not begun") as raised:
        met(Hand(("here/0", b"")))

    assert "rank 0" not in str(raised.value)


def test_does_not_wait_for_ever_for_one_while_others_keep_sharing() -> None:
    hand = Hand(*[("0/key", b"")] * 100)

    with pytest.raises(FormError, match="rank 0 on one, 2 on three"):
        met(hand)
    assert hand.time == 5.0


def test_an_agent_that_is_gone_is_no_crash() -> None:
    hand = Hand()
    hand.share = lambda key, value: (_ for _ in ()).throw(BrokenPipeError("closed"))  # type: ignore[method-assign]

    with pytest.raises(FormError, match="rank 1 on two lost its agent"):
        met(hand)


def test_a_ring_error_is_found_behind_others() -> None:
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
