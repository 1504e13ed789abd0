"""A step that is open when the ring changes, with a training and a ring that note what is asked of them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from sparktrain.errors import RingError
from sparktrain.training.collectives.continuity import Continuity, MissedCallError
from sparktrain.training.collectives.ring import LocalRing
from sparktrain.training.elastic.elastic_training import ElasticTraining
from sparktrain.training.elastic.state_source import RingAgreement, RingRefusalError, RingStanding
from sparktrain.training.elastic.step_boundary import StepBoundary
from sparktrain.training.elastic.transaction import Transaction
from tests.unit.clocks import InstantClock


class Training(ElasticTraining):
    """Notes the calls; `problems` are raised one after the other as it takes over."""

    compares_calls = True

    def __init__(self, calls: list[str], *problems: Exception, able: bool = True) -> None:
        self.calls = calls
        self._problems = list(problems)
        self._able = able

    def accepts(self, offer: Any) -> bool:
        return True

    def can_continue(self, *, in_step: bool) -> bool:
        return self._able

    def standing(self, *, in_step: bool) -> RingStanding:
        return RingStanding(steps=4, in_step=in_step)

    def undo(self, *, in_step: bool) -> None:
        self.calls.append("undo" if in_step else "keep")

    def send(self, folder: Path, ranks: Sequence[int], *, in_step: bool) -> None:
        self.calls.append(f"send to {ranks}")

    def take_over(self, agreement: RingAgreement, *, in_step: bool) -> bool:
        self.calls.append("take over")
        if self._problems:
            raise self._problems.pop(0)
        return in_step


class Healing:
    """The rings of a member, in which a process of rank 1 is new; `next` calls are those of the others."""

    def __init__(self, calls: list[str], others: int = 0) -> None:
        self.calls = calls
        self.training: Any = None
        self.ring: Any = SimpleNamespace(
            rank=0,
            allgather_array=lambda row, name: np.concatenate([row, row + others], axis=0),
            continuity=Continuity(),
        )

    def rejoin(self, error: BaseException) -> None:
        self.calls.append(f"join after {error}")

    def agree(self, standing: RingStanding, write: Callable[[Path, list[int]], None]) -> RingAgreement:
        write(Path(), [1])
        return RingAgreement(standings=(standing, RingStanding(is_new=True)), source=0, folder=Path(), results=())

    def change(self, offer: str, step: int) -> None:
        self.calls.append(f"{offer} after {step}")
        if offer == "broken":
            raise RingError("gone")

    def declare(self, heals: bool) -> None:
        self.calls.append(f"declare {heals}")

    def settle(self) -> None:
        self.calls.append("settle")


def opened(*problems: Exception, able: bool = True, others: int = 0) -> tuple[Transaction, StepBoundary, list[str]]:
    """A transaction after step 4, its boundary, and what it calls."""
    calls: list[str] = []
    healing = Healing(calls, others)
    boundary = StepBoundary(LocalRing(), InstantClock(), lambda: False)
    boundary.start(0)
    boundary.take_comparison(4)
    transaction = Transaction(Training(calls, *problems, able=able), cast(Any, healing), boundary)
    transaction.survive()
    return transaction, boundary, calls


HEALED = ["undo", "send to [1]", "take over"]


@pytest.mark.parametrize("in_step", [True, False])
def test_a_step_is_undone_in_the_next_ring_and_settled_once(in_step: bool) -> None:
    transaction, boundary, calls = opened()
    assert transaction.heal(RingError("gone"), in_step=in_step) == in_step, "an open step is repeated"
    assert calls == ["join after gone", "undo" if in_step else "keep", *HEALED[1:]]
    assert boundary.take_comparison(5), "the first step in another ring"
    transaction.settle()
    transaction.settle()
    assert calls[4:] == ["settle"]


def test_a_member_that_is_lost_while_others_take_over_leaves_them_the_ring_after_that() -> None:
    transaction, _, calls = opened(RingError("also gone"))
    transaction.heal(RingError("gone"), in_step=True)
    assert calls == ["join after gone", *HEALED, "join after also gone", *HEALED]


@pytest.mark.parametrize("problem", [RingRefusalError("too short"), MissedCallError("late"), ZeroDivisionError("bug")])
def test_an_error_that_no_other_ring_changes_ends_the_training(problem: Exception) -> None:
    transaction, _, calls = opened(problem)
    with pytest.raises(type(problem)):
        transaction.heal(RingError("gone"), in_step=True)
    assert calls == ["join after gone", *HEALED]


@pytest.mark.parametrize("sending", [True, False])
def test_a_member_that_cannot_continue_joins_no_ring(sending: bool) -> None:
    transaction, boundary, calls = opened(able=sending)
    boundary.sending = sending
    with pytest.raises(RingError, match="gone"):
        transaction.heal(RingError("gone"))
    assert calls == []


@pytest.mark.parametrize(
    ("offer", "joins"), [(None, []), ("offer", [*HEALED]), ("broken", ["join after gone", *HEALED])]
)
def test_a_process_is_taken_before_the_next_step_and_once(offer: str | None, joins: list[str]) -> None:
    transaction, boundary, calls = opened()
    boundary.offer = cast(Any, offer)
    for _ in range(2):
        transaction.change(in_step=True)
    assert calls == ([] if offer is None else [f"{offer} after 4", *joins])


@pytest.mark.parametrize("others", [0, 1])
def test_members_compare_their_next_collective_once_in_each_other_ring(others: int) -> None:
    transaction, _, _ = opened(others=others)
    transaction.meet("first")
    transaction.heal(RingError("gone"))
    if others:
        with pytest.raises(MissedCallError, match="next collective of rank 0 is 'value', and that of others is"):
            transaction.meet("value")
    else:
        transaction.meet("value")
    transaction.meet("next")


def test_a_step_that_is_open_and_a_training_that_has_ended_heal_no_collective() -> None:
    transaction, boundary, calls = opened()
    continuity = transaction._healing.ring.continuity
    with transaction.opened():
        assert continuity.survivor is None
    assert continuity.survivor is transaction
    boundary.offer = cast(Any, "offer")
    transaction.end()
    transaction.change(in_step=False)
    assert continuity.survivor is transaction._healing.training is None
    assert calls == ["declare False"]
