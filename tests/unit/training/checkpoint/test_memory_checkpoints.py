"""The rounds of memory checkpoints in a loop of the user's own, with members made of data."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sparktrain.errors import OutOfStepError, SpecError
from sparktrain.training.checkpoint import memory_checkpoints
from sparktrain.training.checkpoint.memory_checkpoints import MemoryCheckpoints, loop_of
from sparktrain.training.checkpoint.memory_rounds import MemoryRounds
from sparktrain.training.collectives.ring import LocalRing
from sparktrain.training.data.position import Cursor, Position
from tests.unit.clocks import InstantClock


class Mirror(LocalRing):
    """A ring of two, in which rank 1 counts `ahead` steps more than this member, and may lack an offer."""

    size = 2

    def __init__(self, ahead: int = 0, *, lacks_offer: bool = False) -> None:
        self.ahead = ahead
        self.lacks_offer = lacks_offer

    def allreduce(self, tensors: Sequence[Any], *, average: bool, name: str) -> list[Any]:
        [rows] = tensors
        rows[1] = rows[0]
        rows[1, 0] += self.ahead
        if self.lacks_offer:
            rows[1, -2] = 0.0
        return [rows]


class Memory:
    """What takes snapshots, with notes of them."""

    able = True
    busy = False
    beside_s = 0.0
    turns = staticmethod(lambda: (0, 1))
    is_pause_due = False

    def __init__(self, may_grow: bool = False) -> None:
        self.may_grow = may_grow
        self.snapshots: list[tuple[Any, ...]] = []
        self.extra: dict[str, Any] = {}

    def part(self, parts: Any, extra: dict[str, Any]) -> bytes:
        self.extra = extra
        return bytes(2**16)

    def take(self, parts: Any, place: Any, part: bytes, members: Any, *, paused: bool, pace_s: float) -> None:
        self.snapshots.append((*place, paused))


def loop(ring: Any, memory: Any, start: int = 0) -> tuple[MemoryCheckpoints, list[tuple[int, bool]], InstantClock]:
    """The object of a loop, the steps that it reports, and its clock."""
    clock = InstantClock()
    reported: list[tuple[int, bool]] = []
    rounds = MemoryRounds(ring, memory, 0.0, clock)
    return (
        MemoryCheckpoints((), rounds, lambda step, training: reported.append((step, training)), clock, start),
        reported,
        clock,
    )


def test_members_take_a_snapshot_where_one_is_due_with_what_the_chief_saves() -> None:
    memory = Memory()
    checkpoints, reported, clock = loop(Mirror(), memory, start=4)
    with checkpoints as steps:
        clock.pause(1.0)
        steps.step(5, epoch=1, batch=2, note="five")
        clock.pause(1.0)
        steps.step(6, note="six")
    assert memory.snapshots == [(5, 1, 2, False), (6, None, None, False)]
    assert memory.extra == {"note": "six"}
    assert reported == [(4, True), (5, True), (6, True), (6, False)]


@pytest.mark.parametrize(("may_grow", "count"), [(False, 0), (True, 2)])
def test_a_member_alone_takes_none_unless_its_gang_may_grow(may_grow: bool, count: int) -> None:
    memory = Memory(may_grow)
    checkpoints, _, clock = loop(LocalRing(), memory)
    with checkpoints as steps:
        for step in (1, 2):
            clock.pause(1.0)
            steps.step(step)
    assert len(memory.snapshots) == count


def test_a_step_is_only_called_where_no_loss_can_be_survived() -> None:
    with loop(Mirror(), Memory())[0] as memory:
        assert memory.train(lambda first, *, second: (first, second), 1, second=2) == (1, 2)
        with pytest.raises(ZeroDivisionError):
            memory.train(lambda: 1 // 0)


def test_members_that_hold_parts_of_a_model_take_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_checkpoints, "is_split", lambda parts: True)
    memory = Memory(may_grow=True)
    checkpoints, _, clock = loop(Mirror(), memory)
    with checkpoints as steps:
        clock.pause(1.0)
        steps.step(1)
    assert memory.snapshots == []


def test_members_with_different_steps_are_named() -> None:
    with (
        loop(Mirror(ahead=2), Memory())[0] as steps,
        pytest.raises(
            OutOfStepError, match="rank 0 after step 1, rank 1 after step 3; have all of them count the same"
        ),
    ):
        steps.step(1)


@pytest.mark.parametrize("lacks_offer", [False, True])
def test_members_form_the_ring_that_all_of_them_are_offered(lacks_offer: bool) -> None:
    clock = InstantClock()
    rounds = MemoryRounds(Mirror(lacks_offer=lacks_offer), Memory(), 0.0, clock)  # type: ignore[arg-type]
    rounds.start(0)
    for ring in (0, 3):
        rounds.offered_ring = lambda: ring  # noqa: B023
        clock.pause(1.0)
        rounds.agree((), ring + 1, (None, None), dict)
        assert rounds.agreed_ring == (0 if lacks_offer else ring)


def test_a_loop_with_feeds_keeps_its_size() -> None:
    position = Position()
    Cursor(position, 5, members=2)
    with pytest.raises(SpecError, match=r"resizable=True\) after ctx.shard\(\) or ctx.dataset\(\): their batches are"):
        loop_of((), None, None, position, resizable=True)
    assert loop_of((), None, None, position) is None


def test_steps_grow_and_are_counts() -> None:
    checkpoints, _, _ = loop(LocalRing(), Memory(), start=3)
    checkpoints.step(3)
    for step in (2, 3):
        with pytest.raises(
            ValueError, match=rf"memory.step\({step}\) came after step 3: steps must grow, and continue"
        ):
            checkpoints.step(step)
    with pytest.raises(TypeError, match=r"memory.step\(step='4'\): an integer is needed"):
        checkpoints.step("4")  # type: ignore[arg-type]


def test_a_fork_and_parts_without_a_state_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints, _, clock = loop(LocalRing(), Memory())
    with pytest.raises(
        TypeError, match=r"ctx.memory_checkpoints got an object of type numpy.ndarray: pass one Keras model, wh"
    ):
        MemoryCheckpoints((np.ones(3),), None, lambda step, training: None, clock, 0)
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    with pytest.raises(RuntimeError, match=rf"belong to process {parent}, and {parent + 1} called memory.step\(\)"):
        checkpoints.step(1)


def test_a_loop_that_fails_reports_no_end() -> None:
    checkpoints, reported, _ = loop(LocalRing(), Memory())
    with pytest.raises(ZeroDivisionError), checkpoints:
        raise ZeroDivisionError
    assert reported == [(0, True)]
