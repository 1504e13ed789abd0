"""Agents that store the parts of a checkpoint, which all members write: one manifest of the chief's names them."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sparktrain.base.ids import AgentId
from sparktrain.executor.snapshots import CheckpointStorer, SnapshotRetryPolicy
from sparktrain.protocol import messages as m
from sparktrain.protocol import pipe_messages as pm
from sparktrain.rundir.checkpoints import MANIFEST, left_over, manifest_of, verified
from sparktrain.rundir.layout import RunLayout
from tests.process.harness import eventually
from tests.unit.executor.test_snapshots import QUICK, TRIAL, Desk
from tests.unit.store.gated import fault


class Pair:
    """The agents of two members, and a coordinator that decides when a test calls it."""

    def __init__(self, desk: Desk, policy: SnapshotRetryPolicy = QUICK) -> None:
        self.desk = desk
        self.desk.acknowledges = False
        self.agents = [self._agent(rank, policy) for rank in range(2)]
        self.posted: list[Any] = []

    def _agent(self, rank: int, policy: SnapshotRetryPolicy) -> CheckpointStorer:
        def post(message: m.FromAgent) -> None:
            self.posted.append(message)

        scratch = self.desk.folder / f"scratch-{rank}"
        return CheckpointStorer(scratch, AgentId(f"agent-{rank}"), post, policy, self.desk._open)

    def save(self, rank: int, step: int) -> "asyncio.Task[pm.SnapshotAnswered]":
        """The member has written its part."""
        home = self.desk.home(rank=rank)
        folder = home / f"snapshot-{step}"
        folder.mkdir()
        names = ("state.json", "tensors-00000.safetensors") if not rank else ("part-0001-00000.safetensors",)
        for name in (*names, f"slices-{rank:04d}.json"):
            (folder / name).write_text(f"{name} of {step}")
        snapshot = pm.Snapshot(step, str(folder), keep=2, score=0.5, part=True)
        return asyncio.create_task(self.agents[rank].store(self.desk.start(rank=rank), home, snapshot))

    async def stored(self, count: int) -> list[m.PartStored]:
        """The parts that were posted, by rank, once there are so many."""
        await eventually(lambda: len(self._all(m.PartStored)) == count, 30.0)
        return sorted(self._all(m.PartStored), key=lambda message: int(message.member.rank))

    def _all(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.posted if isinstance(message, kind)]

    def commit(self, step: int, parts: list[m.PartStored]) -> None:
        chief = self.desk.start().member
        self.agents[0].decided(m.CommitParts(chief, step, tuple(message.part for message in parts)))

    async def acknowledge(self) -> m.CheckpointStored:
        await eventually(lambda: bool(self._all(m.CheckpointStored)), 30.0)
        [stored] = self._all(m.CheckpointStored)
        for rank, agent in enumerate(self.agents):
            agent.acknowledged(m.AckCheckpoint(self.desk.start(rank=rank).member, stored.checkpoint))
        assert isinstance(stored, m.CheckpointStored)
        return stored

    def give_up(self, step: int, problem: str) -> None:
        for rank, agent in enumerate(self.agents):
            agent.decided(m.GiveUpPart(self.desk.start(rank=rank).member, step, problem))

    def leftovers(self) -> list[str]:
        return left_over(self.desk.store, RunLayout("run"), TRIAL, [])


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def pair(desk: Desk) -> Pair:
    return Pair(desk)


async def test_one_manifest_names_the_parts_of_all_and_each_agent_has_its_own_for_a_restart(pair: Pair) -> None:
    saves = [pair.save(rank, 7) for rank in range(2)]
    parts = await pair.stored(2)
    assert pair._all(m.CheckpointStored) == [], "no part counts by itself"
    pair.commit(7, parts)
    stored = await pair.acknowledge()
    assert await asyncio.gather(*saves) == [pm.SnapshotAnswered(7)] * 2

    manifest = manifest_of(pair.desk.store, stored.checkpoint)
    names = ["slices-0000.json", "state.json", "tensors-00000.safetensors"]
    names += ["part-0001-00000.safetensors", "slices-0001.json"]
    assert [shard.name for shard in manifest.shards] == names
    assert (manifest.version, manifest.score, manifest.writer) == (2, 0.5, "agent-0")
    assert sum(verified(pair.desk.store, stored.checkpoint, manifest)) > 0
    assert left_over(pair.desk.store, RunLayout("run"), TRIAL, [stored.checkpoint]) == []
    for rank, agent in enumerate(pair.agents):
        home = pair.desk.home(generation=2, rank=rank)
        folder = await agent.restore_dir(pair.desk.start(2, stored.checkpoint, rank), home)
        assert sorted(os.listdir(folder)) == sorted([MANIFEST, *names])


async def test_a_step_that_was_given_up_leaves_parts_without_a_manifest(pair: Pair) -> None:
    saves = [pair.save(rank, 7) for rank in range(2)]
    await pair.stored(2)
    pair.give_up(7, "rank 2 is out of disk")
    assert await asyncio.gather(*saves) == [pm.SnapshotAnswered(7, "rank 2 is out of disk")] * 2
    assert len(pair.leftovers()) == 5
    assert not [path for path in pair.leftovers() if "manifest" in path]


async def test_a_part_that_is_still_being_stored_ends_when_its_step_is_given_up(pair: Pair) -> None:
    reached = asyncio.Event()
    loop = asyncio.get_running_loop()

    def gate(name: str, effect: Any) -> Any:
        if name == "create":
            loop.call_soon_threadsafe(reached.set)
            pair.agents[1]._part.abandoned.wait(30)  # type: ignore[union-attr] # it is being stored
        return effect()

    pair.desk.gate = gate
    save = pair.save(1, 7)
    await reached.wait()
    pair.give_up(7, "rank 0 is out of disk")
    assert await save == pm.SnapshotAnswered(7, "rank 0 is out of disk")
    assert pair.posted == [], "its part is not reported"


async def test_a_store_that_fails_and_a_coordinator_that_is_silent_are_named(desk: Desk) -> None:
    quick = SnapshotRetryPolicy(store_s=0.2, acknowledge_s=0.1, attempts=1, between_s=0.0)
    pair = Pair(desk, quick)
    answer = await pair.save(1, 7)
    assert answer.problem == (
        "the checkpoint of step 7 did not get the parts of all members, and a manifest, within 0 s: every member must "
        "save the same steps, and the store may be slow"
    )

    def full(name: str, effect: Any) -> Any:
        raise fault()

    desk.gate = full
    assert str(fault()) in (await pair.save(1, 8)).problem


async def test_news_of_another_step_or_member_do_not_count(pair: Pair) -> None:
    save = pair.save(1, 7)
    [part] = await pair.stored(1)
    other = replace(part.member, rank=part.member.rank + 1)
    pair.agents[1].decided(m.GiveUpPart(part.member, 6, "an older one"))
    pair.agents[1].decided(m.GiveUpPart(other, 7, "another member's"))
    pair.agents[1].decided(m.GiveUpPart(part.member, 7, "this one"))
    assert await save == pm.SnapshotAnswered(7, "this one")


async def test_parts_with_files_of_one_name_make_no_checkpoint(pair: Pair) -> None:
    save = pair.save(0, 7)
    [part] = await pair.stored(1)
    pair.commit(7, [part, part])
    problem = (await save).problem
    assert problem == "the parts of step 7 make no checkpoint: two shards of the name 'slices-0000.json'"
