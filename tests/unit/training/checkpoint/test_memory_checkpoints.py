"""The rounds of memory checkpoints in a loop of the user's own, with members made of data."""

import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparktrain.errors import OutOfStepError, SpecError
from sparktrain.training.checkpoint import memory_checkpoints
from sparktrain.training.checkpoint.memory_checkpoints import MemoryCheckpoints, loop_of
from sparktrain.training.collectives.ring import LocalRing
from sparktrain.training.data.position import Cursor, Position
from sparktrain.training.elastic import step_boundary
from sparktrain.training.elastic.step_boundary import MemberFacts, StepBoundary
from sparktrain.training.judgement import Judgement
from tests.unit.clocks import InstantClock


class Mirror(LocalRing):
    """A ring of two, in which rank 1 knows the same as this member, but for some `facts`."""

    size = 2

    def __init__(self, **facts: float) -> None:
        self.facts = facts

    def allgather(self, tensor: Any, *, name: str) -> Any:
        rows = np.repeat(tensor, 2, axis=0)
        for field, value in self.facts.items():
            rows[1, MemberFacts.__struct_fields__.index(field)] = value
        return rows


class Memory:
    """What takes snapshots, with notes of them."""

    able = True
    busy = False
    beside_s = 0.0
    turns = staticmethod(lambda: (0, 1))
    is_pause_due = False

    def settle(self) -> None:
        """No copy is under way."""

    def __init__(self, may_grow: bool = False) -> None:
        self.may_grow = may_grow
        self.snapshots: list[tuple[Any, ...]] = []
        self.extra: dict[str, Any] = {}

    def part(self, parts: Any, extra: dict[str, Any]) -> bytes:
        self.extra = extra
        return bytes(2**16)

    def take(
        self, parts: Any, place: Any, part: bytes, members: Any, *, paused: bool, pace_s: float, held: Any
    ) -> None:
        self.snapshots.append((*place, paused))


def loop(ring: Any, memory: Any, start: int = 0) -> tuple[MemoryCheckpoints, list[tuple[int, bool]], InstantClock]:
    """The object of a loop, the steps that it reports, and its clock."""
    clock = InstantClock()
    reported: list[tuple[int, bool]] = []
    boundary = StepBoundary(ring, clock, lambda: False, memory=memory, interval_s=0.0)
    return (
        MemoryCheckpoints((), boundary, lambda step, training: reported.append((step, training)), clock, start),
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


def test_members_that_hold_parts_of_a_model_take_none_where_these_cannot_travel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_checkpoints, "is_split", lambda parts: True)
    memory = Memory(may_grow=True)
    checkpoints, _, clock = loop(Mirror(), memory)
    with checkpoints as steps:
        clock.pause(1.0)
        steps.step(1)
    assert memory.snapshots == []


def test_members_agree_once_in_a_block_on_who_holds_which_part(monkeypatch: pytest.MonkeyPatch) -> None:
    agreements: list[Any] = []

    def agree(ring: Any, parts: Any) -> str:
        agreements.append(parts)
        return "a layout"

    monkeypatch.setattr(step_boundary, "held_parts", agree)
    clock = InstantClock()
    memory: Any = Memory()
    boundary = StepBoundary(Mirror(), clock, lambda: False, memory=memory, interval_s=0.0)
    for first in (1, 4):
        boundary.start(first - 1)
        for step in range(first, first + 3):
            clock.pause(1.0)
            boundary.end_step((), step, (None, None), dict)
    assert len(memory.snapshots) == 6
    assert len(agreements) == 2


def test_members_with_different_steps_are_named() -> None:
    with (
        loop(Mirror(step=3), Memory())[0] as steps,
        pytest.raises(
            OutOfStepError, match="rank 0 after step 1, rank 1 after step 3; have all of them count the same"
        ),
    ):
        steps.step(1)


@pytest.mark.parametrize("facts", [{}, {"ring": 0.0}])
def test_members_form_the_ring_that_all_of_them_are_offered(facts: dict[str, float]) -> None:
    offers = [None, SimpleNamespace(ring=3)]
    healing: Any = SimpleNamespace(offer=lambda: offers.pop(0))
    clock = InstantClock()
    boundary = StepBoundary(Mirror(**facts), clock, lambda: False, healing=healing)
    boundary.start(0)
    for step in (1, 2):
        clock.pause(1.0)
        assert boundary.is_due(step)
        boundary.agree(step)
    assert (boundary.offer is None) == bool(facts)


@pytest.mark.parametrize("fact", ["stops", "asks", "saves", "each_step", None])
def test_all_members_do_what_one_of_them_knows(fact: str | None) -> None:
    clock = InstantClock()
    boundary = StepBoundary(Mirror(**({} if fact is None else {fact: 1.0})), clock, lambda: False)
    boundary.start(0)
    for step in (1, 3):
        clock.pause(0.1)
        boundary.agree(step)
    done = {"stops": boundary.stops, "asks": boundary.asked, "saves": boundary.saves, "each_step": boundary.is_due(4)}
    assert [name for name, does in done.items() if does] == ([] if fact is None else [fact])


@pytest.mark.parametrize("asked", [0, 1])
def test_all_members_see_that_they_stop_after_the_step_at_which_they_agree(asked: int) -> None:
    """Where the run asks one of them after step 8, and they agree after the steps 1, 3, 7, and 11."""
    clock = InstantClock()
    ring = Mirror()
    wire = SimpleNamespace(judged=lambda step, timeout_s: None, stop_advised=lambda: False)
    judgement = Judgement(wire, clock)  # type: ignore[arg-type]
    boundary = StepBoundary(ring, clock, judgement.asked)
    stops = []
    with MemoryCheckpoints((), boundary, lambda step, training: None, clock, 0, judgement=judgement) as memory:
        for step in range(1, 13):
            clock.pause(0.25)
            memory.step(step)
            stops.append(judgement.stop())
            if step == 8 and asked:
                ring.facts["stops"] = 1.0
            elif step == 8:
                wire.stop_advised = lambda: True
    assert stops == [False] * 10 + [True] * 2
    assert judgement.stop() == (not asked), "after the loop each member decides for itself"


def test_a_member_alone_stops_at_once() -> None:
    wire = SimpleNamespace(judged=lambda step, timeout_s: None, stop_advised=lambda: True)
    judgement = Judgement(wire, InstantClock())  # type: ignore[arg-type]
    boundary = StepBoundary(LocalRing(), InstantClock(), judgement.asked)
    with MemoryCheckpoints((), boundary, lambda step, training: None, InstantClock(), 0, judgement=judgement):
        assert judgement.stop()


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
