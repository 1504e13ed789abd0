"""Members whose operations of a ring are different find that out; those that are slow do not."""

from collections import deque
from dataclasses import dataclass, field

from sparktrain.training.collectives.call_watch import PATIENCE_S, Lookout
from sparktrain.training.collectives.collective_call import CollectiveCall


@dataclass
class Side:
    """One member: a clock that is moved by hand, what it has begun, and its mail."""

    time: float = 0.0
    begun: list[str] = field(default_factory=list)
    mail: deque[tuple[str, bytes]] = field(default_factory=deque)
    other: "Side | None" = None
    sent: int = 0

    def now(self) -> float:
        return self.time

    def newest(self) -> dict[int, CollectiveCall]:
        return {number: CollectiveCall(number, key, f"call {key}") for number, key in enumerate(self.begun)}

    def share(self, key: str, value: bytes) -> None:
        self.sent += 1
        if self.other is not None:
            self.other.mail.append((key, value))

    def shared(self, timeout_s: float) -> tuple[str, bytes] | None:
        return self.mail.popleft() if self.mail else None


def two() -> tuple[Side, Side, Lookout, Lookout]:
    first, second = Side(), Side()
    first.other, second.other = second, first
    lookouts = [Lookout(side, side, rank, side) for rank, side in enumerate((first, second))]  # type: ignore[arg-type]
    return first, second, *lookouts


def test_another_operation_under_the_same_number_is_told_with_both() -> None:
    first, second, one, two_ = two()
    first.begun, second.begun = ["a", "b"], ["a", "c"]
    assert one.look() is two_.look() is None
    first.time = PATIENCE_S
    assert one.look() is None
    assert "as operation 2: rank 0 calls call b; rank 1 calls call c." in (two_.look() or "")


def test_an_operation_that_comes_later_is_compared_when_it_comes() -> None:
    first, second, one, two_ = two()
    first.begun, second.begun = ["a", "b"], ["a"]
    one.look()
    first.time = PATIENCE_S
    one.look()
    assert two_.look() is None
    second.begun.append("end")
    assert "rank 1 calls call end" in (two_.look() or "")


def test_a_slow_member_is_no_mistake_and_what_is_usual_is_told_of_less_often() -> None:
    first, second, one, two_ = two()
    for step in range(20):
        first.begun.append(str(step))
        one.look()
        first.time += PATIENCE_S
        assert one.look() is None
        second.begun.append(str(step))
        assert two_.look() is None
    assert first.sent == 1


def test_who_has_failed_asks_at_once() -> None:
    first, second, one, two_ = two()
    first.begun, second.begun = ["a"], ["b"]
    assert two_.ask(0.0) is None
    assert "rank 0 calls call a; rank 1 calls call b" in (one.ask(0.0) or "")
