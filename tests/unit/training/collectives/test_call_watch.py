"""Members that call different collectives find that out; slow members cause no finding."""

from collections import deque
from dataclasses import dataclass, field

from sparktrain.training.collectives.call_watch import QUIET_S, CallWatch
from sparktrain.training.collectives.eager_call_log import CollectiveCall


@dataclass
class Side:
    """One member: a clock that the test moves, its started collectives, and its mail."""

    time: float = 0.0
    started: list[str] = field(default_factory=list)
    mail: deque[tuple[str, bytes]] = field(default_factory=deque)
    other: "Side | None" = None
    sent: int = 0

    def now(self) -> float:
        return self.time

    def newest(self) -> dict[int, CollectiveCall]:
        return {number: CollectiveCall(number, key, f"call {key}") for number, key in enumerate(self.started)}

    def share(self, key: str, value: bytes) -> None:
        self.sent += 1
        if self.other is not None:
            self.other.mail.append((key, value))

    def shared(self, timeout_s: float) -> tuple[str, bytes] | None:
        return self.mail.popleft() if self.mail else None


def two() -> tuple[Side, Side, CallWatch, CallWatch]:
    first, second = Side(), Side()
    first.other, second.other = second, first
    watches = [CallWatch(side.newest, side, rank, side) for rank, side in enumerate((first, second))]  # type: ignore[arg-type]
    return first, second, *watches


def test_different_collectives_under_one_number_are_reported_with_both() -> None:
    first, second, one, two_ = two()
    first.started, second.started = ["a", "b"], ["a", "c"]
    assert one.look() is two_.look() is None
    first.time = QUIET_S
    assert one.look() is None
    assert "as operation 2: rank 0 calls call b; rank 1 calls call c." in (two_.look() or "")


def test_a_later_collective_is_compared_when_it_starts() -> None:
    first, second, one, two_ = two()
    first.started, second.started = ["a", "b"], ["a"]
    one.look()
    first.time = QUIET_S
    one.look()
    assert two_.look() is None
    second.started.append("end")
    assert "rank 1 calls call end" in (two_.look() or "")


def test_a_slow_member_is_no_mismatch_and_usual_pauses_are_reported_less_often() -> None:
    first, second, one, two_ = two()
    for step in range(20):
        first.started.append(str(step))
        one.look()
        first.time += QUIET_S
        assert one.look() is None
        second.started.append(str(step))
        assert two_.look() is None
    assert first.sent == 1


def test_a_member_with_a_failed_collective_asks_at_once() -> None:
    first, second, one, two_ = two()
    first.started, second.started = ["a"], ["b"]
    assert two_.ask(0.0) is None
    assert "rank 0 calls call a; rank 1 calls call b" in (one.ask(0.0) or "")
