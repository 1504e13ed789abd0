"""No history of members that save parts, fail, wait too long, are killed, or act after their gang has ended, has a
checkpoint with other parts than those of all members for its own step, or a member that waits forever.

The same histories find each of the mistakes in `MUTANTS`.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from sparktrain.base.ids import CHIEF, AgentId, Member
from sparktrain.errors import CheckpointError
from sparktrain.rundir.checkpoints import commit, write_part
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state import run_machine
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.checkpoint_parts import CheckpointParts
from sparktrain.state.outcome import FailureKind
from sparktrain.state.run_machine import RunMachine
from tests.unit.rundir.snapshots import LAYOUT, loaded, part_content, part_draft, quick_folder
from tests.unit.state.gangs import by_rank, gang, run, trial
from tests.unit.state.world import World
from tests.unit.store.gated import MemoryStore

HISTORIES = 60
MOVES = 80
SIZE = 3


@dataclass
class Writer:
    """One member and its agent, as both see it: they may be of a gang that has ended."""

    agent: AgentId
    member: Member
    step: int = 0
    """The newest step that it has saved."""
    waits: bool = False
    """It has no answer for that step yet."""
    posted: deque[m.MemberMessage] = field(default_factory=deque)
    """Messages on their way to the coordinator."""
    commits: deque[m.CommitParts] = field(default_factory=deque)


class History:
    """Chance decides who does what next."""

    def __init__(self, local: Path, seed: int) -> None:
        self._local = local
        self._chance = Random(seed)
        self._store = MemoryStore()
        self._world = World()
        gang(self._world, SIZE, max_retries=10**6)
        self._agents = SIZE
        self._writers: list[Writer] = []
        self._zombies: list[Writer] = []
        self._checked: set[str] = set()
        self._enlist()

    def play(self) -> None:
        moves = {self.save: 6, self.deliver: 8, self.commit: 3, self.fail: 1, self.give_up_waiting: 1, self.kill: 1}
        for _ in range(MOVES):
            [move] = self._chance.choices([*moves], [*moves.values()])
            move()
        self.settle()

    # ---- moves

    def save(self) -> None:
        """A member stores its part of a later step, which need not be the next one."""
        writer = self._chance.choice(self._writers)
        if not writer.waits:
            self._save(writer, writer.step + self._chance.randint(1, 2))

    def fail(self) -> None:
        """A member cannot write or store its part."""
        writer = self._chance.choice(self._writers)
        if not writer.waits:
            writer.step += 1
            writer.posted.append(m.CheckpointFailed(writer.member, writer.step, "the store is full", part=True))

    def give_up_waiting(self) -> None:
        """The deadline of an agent is over."""
        writer = self._chance.choice(self._writers)
        if writer.waits:
            writer.waits = False
            writer.commits.clear()
            writer.posted.append(m.CheckpointFailed(writer.member, writer.step, "it took too long", part=True))

    def deliver(self) -> None:
        """A message arrives, perhaps one of a member that was replaced."""
        ready = [writer for writer in (*self._writers, *self._zombies) if writer.posted]
        if ready:
            writer = self._chance.choice(ready)
            self._receive(writer.agent, writer.posted.popleft())

    def commit(self) -> None:
        """The chief's agent stores the manifest, also that of a gang which has ended."""
        ready = [writer for writer in (*self._writers, *self._zombies) if writer.commits]
        if ready:
            self._commit(self._chance.choice(ready))

    def kill(self) -> None:
        """The agent of a member is lost, and the gang forms again. Its members may not notice."""
        lost = self._chance.choice(self._writers)
        self._zombies += self._writers
        world = self._world
        world.lose(lost.agent)
        for agent in list(world.running):
            world.fail(agent, FailureKind.RING)
        world.join(f"a{self._agents}")
        self._agents += 1
        world.tick(60)
        run(world, by_rank(world))
        self._enlist()

    def settle(self) -> None:
        """All members save one more step, and all that is on its way arrives: no member waits then."""
        last = max(writer.step for writer in self._writers) + 1
        for _ in range(SIZE + 1):
            for writer in self._writers:
                if not writer.waits and writer.step < last:
                    self._save(writer, last)
            while any(writer.posted or writer.commits for writer in self._writers):
                for writer in self._writers:
                    while writer.posted:
                        self._receive(writer.agent, writer.posted.popleft())
                    if writer.commits:
                        self._commit(writer)
        waiting = [(writer.member.rank, writer.step) for writer in self._writers if writer.waits]
        assert not waiting, f"STUCK: {waiting} wait for an answer"
        newest = trial(self._world).checkpoints.newest
        assert newest is not None, "LOST: there is no checkpoint"
        assert newest.step == last, f"LOST: {newest.step} is the newest, and all members have saved {last}"

    # ---- what agents do

    def _enlist(self) -> None:
        world = self._world
        base = trial(world).checkpoints.newest_step or 0
        self._writers = [Writer(agent, world.running[agent], base) for agent in by_rank(world)]

    def _save(self, writer: Writer, step: int) -> None:
        writer.step = step
        writer.waits = True
        draft = part_draft(self._local, step, writer.member.rank, writer.member.generation)
        part = write_part(self._store, LAYOUT, draft, threads=1)
        writer.posted.append(m.PartStored(writer.member, step, part))

    def _commit(self, writer: Writer) -> None:
        order = writer.commits.popleft()
        draft = part_draft(self._local, order.step, CHIEF, order.member.generation)
        try:
            checkpoint = commit(self._store, LAYOUT, draft, order.parts)
        except CheckpointError as error:
            writer.posted.append(m.CheckpointFailed(writer.member, order.step, str(error), part=True))
            return
        writer.posted.append(m.CheckpointStored(writer.member, checkpoint))

    def _receive(self, agent: AgentId, message: m.MemberMessage) -> None:
        for command in self._world.feed(on.AgentSent(self._world.at, agent, message)):
            if isinstance(command, do.Send):
                self._answer(command.message)
        for checkpoint in trial(self._world).checkpoints.retained:
            self._check(checkpoint)

    def _answer(self, message: Any) -> None:
        writer = next((each for each in self._writers if each.member == getattr(message, "member", None)), None)
        if writer is None or not writer.waits:
            return
        match message:
            case m.CommitParts(step=step) if step == writer.step:
                writer.commits.append(message)
            case m.GiveUpPart(step=step) if step == writer.step:
                writer.waits = False
            case m.AckCheckpoint(checkpoint=checkpoint) if checkpoint.step == writer.step:
                writer.waits = False

    def _check(self, checkpoint: Checkpoint) -> None:
        if checkpoint.digest in self._checked:
            return
        self._checked.add(checkpoint.digest)
        files: dict[str, bytes] = {}
        for rank in range(SIZE):
            files |= part_content(checkpoint.generation, checkpoint.step, rank)
        try:
            found = loaded(self._store, checkpoint, self._local)
        except CheckpointError as error:
            raise AssertionError(f"INCOMPLETE: {error}") from error
        assert found.keys() == files.keys(), f"INCOMPLETE: {checkpoint} has {sorted(found)}"
        assert found == files, f"GARBLED: {checkpoint} has parts of another step or generation"


def play(histories: int) -> None:
    """So many histories; the same ones each time."""
    for seed in range(histories):
        with quick_folder() as local:
            try:
                History(local, seed).play()
            except AssertionError as error:
                raise AssertionError(f"history {seed}: {error}") from error


def test_every_checkpoint_has_the_parts_of_all_members_and_no_member_waits_forever() -> None:
    play(HISTORIES)


# ---- mistakes


@contextmanager
def _older_parts_count() -> Iterator[None]:
    """What members have stored for a step stays for the next one."""
    real = CheckpointParts._open

    def open_step(self: CheckpointParts, step: int) -> Any:
        stored = {} if self.is_whole else self.stored
        decisions = real(self, step)
        self.stored = stored
        return decisions

    with patch.object(CheckpointParts, "_open", open_step):
        yield


@contextmanager
def _one_part_is_not_awaited() -> Iterator[None]:
    real = CheckpointParts.add

    def add(self: CheckpointParts, rank: Any, step: int, part: Any, size: int) -> Any:
        if rank == SIZE - 1:
            return []
        return real(self, rank, step, part, size - 1)

    with patch.object(CheckpointParts, "add", add):
        yield


@contextmanager
def _no_member_hears_of_a_step_without_a_manifest() -> Iterator[None]:
    real = run_machine.settled_parts

    def settle(*args: Any) -> Any:
        return [command for command in real(*args) if not isinstance(command.message, m.GiveUpPart)]  # type: ignore[union-attr]

    with patch.object(run_machine, "settled_parts", settle):
        yield


@contextmanager
def _the_chief_alone_is_acknowledged() -> Iterator[None]:
    with patch.object(CheckpointParts, "complete", lambda self, step: False):
        yield


@contextmanager
def _no_generation_is_fenced() -> Iterator[None]:
    """A part counts, whichever gang its member belongs to."""
    real = RunMachine._gang_of

    def gang_of(self: RunMachine, agent: AgentId, member: Member) -> Any:
        return real(self, agent, member) or self.sweep.gangs.get(member.trial)

    with patch.object(RunMachine, "_gang_of", gang_of):
        yield


MUTANTS = {
    "older parts count": (_older_parts_count, "GARBLED|INCOMPLETE"),
    "one part is not awaited": (_one_part_is_not_awaited, "INCOMPLETE"),
    "no member hears of a step without a manifest": (_no_member_hears_of_a_step_without_a_manifest, "STUCK"),
    "the chief alone is acknowledged": (_the_chief_alone_is_acknowledged, "STUCK"),
    "no generation is fenced": (_no_generation_is_fenced, "GARBLED|INCOMPLETE"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_histories_find_the_mistake(mutant: str) -> None:
    mistake, words = MUTANTS[mutant]
    with mistake(), pytest.raises(AssertionError, match=words):
        play(HISTORIES)
