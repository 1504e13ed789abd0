"""No history of crashes, faults, lost power, replaced writers, deposed drivers and deletions loses or garbles a
checkpoint that was acknowledged, or has two gangs resume from the same one.

The same histories find each of the mistakes that systems like this one have made: see `MUTANTS`.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from sparktrain.base.ids import AgentId
from sparktrain.errors import CheckpointError
from sparktrain.rundir import checkpoints as product
from sparktrain.rundir.journal.writer import Journal
from sparktrain.rundir.layout import CheckpointLayout, RunLayout
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.records import AnyRecord, CheckpointAcknowledged, GangFormed
from sparktrain.state.run_machine import RunMachine
from sparktrain.store.base import Store
from tests.unit.rundir.checkpoint_histories import Disk, Driver, World, Writer
from tests.unit.rundir.snapshots import LAYOUT, TRIAL, quick_folder
from tests.unit.store.histories import Actor

ALL_HISTORIES = pytest.mark.all(case="150 histories", covered_by="a quarter of them; mistakes that they must find")

HISTORIES = 150
MOVES = 25
FAULTS = ("before", "after", "torn")
OPERATIONS = ("create", "write", "publish", "pieces", "put", "read", "list", "exists")
LUCK = (0.0, 0.03, 0.1)
"""The share of operations that fail."""


class History:
    """Chance decides who does the next operations, and what breaks."""

    def __init__(self, local: Path, seed: int) -> None:
        self.world = World(local)
        self._chance = Random(seed)
        self._moves = {
            self.train: 8,
            self.rivals_train: 2,
            self.anybody_goes_on: 3,
            self.replace: 2,
            self.take_over: 2,
            self.crash: 1,
            self.clean: 2,
            self.rot: 1,
            self.lose_power: 1,
        }

    def play(self) -> None:
        """To its end, which is there early when no checkpoint can be read any more."""
        for _ in range(MOVES):
            if self.world.trial.all_corrupt:
                return
            if self.world.drivers[-1][1].over:
                self.take_over()
            [move] = self._chance.choices([*self._moves], [*self._moves.values()])
            move()
            self.world.check()

    def _step(self, actor: Actor, luck: float = 0.0) -> None:
        fails = actor.next in OPERATIONS and self._chance.random() < luck
        actor.step(self._chance.choice(FAULTS) if fails else "")
        self.world.check()

    def train(self, side: int = 0) -> None:
        """The driver and the writer that came last get somewhere."""
        luck = self._chance.choice(LUCK)
        for _ in range(self._chance.randint(20, 120)):
            self._step(self.world.next(side), luck)

    def rivals_train(self) -> None:
        """Those before have not noticed that they were deposed."""
        self.train(side=1)

    def anybody_goes_on(self) -> None:
        """Also who was replaced, or deposed."""
        actor, luck = self._chance.choice(self.world.actors), self._chance.choice(LUCK)
        for _ in range(self._chance.randint(1, 14)):
            self._step(actor, luck)

    def replace(self) -> None:
        """The gang restarts and makes progress; the replaced one may not have noticed."""
        side = self._chance.randint(0, 1)
        self.world.replace(side)
        self.train(side)

    def take_over(self) -> None:
        """Another driver comes, or two at once; the one before may not have noticed."""
        rivals = self._chance.randint(1, 2)
        for _ in range(rivals):
            self.world.drive()
        for _ in range(rivals * self._chance.randint(20, 60)):
            self._step(self.world.next(self._chance.randrange(rivals)))

    def crash(self) -> None:
        """The process of an actor is gone."""
        self._chance.choice(self.world.actors).crash()

    def clean(self) -> None:
        """What is superfluous goes."""
        for each in self.world.cleaners:
            for _ in range(self._chance.randint(0, 20)):
                self._step(each)

    def rot(self) -> None:
        """A disk loses a bit."""
        self.world.rot(self._chance.randrange(8))

    def lose_power(self) -> None:
        """The power is lost for a moment."""
        self.world.files.lose_power()


def run(histories: int) -> None:
    """Play so many histories; the same ones each time."""
    for seed in range(histories):
        with quick_folder() as local:
            history = History(local, seed)
            try:
                history.play()
            except AssertionError as error:
                raise AssertionError(f"history {seed}: {error}") from error
            finally:
                history.world.close()


@pytest.mark.parametrize("histories", [HISTORIES // 4, pytest.param(HISTORIES, marks=ALL_HISTORIES)])
def test_no_history_loses_or_garbles_an_acknowledged_checkpoint(histories: int) -> None:
    run(histories)


# ---- mistakes of writers and of who fetches


def _agent_deletes() -> Any:
    """The chief keeps only its last checkpoint, and does not wait until the driver has acknowledged it."""
    real = Writer.write

    def write(self: Writer, actor: Actor, step: int, parent: str) -> Checkpoint | None:
        written = real(self, actor, step, parent)
        for each in self._world.trial.retained if written else []:
            product.delete(actor.store, each)
        return written

    return patch.object(Writer, "write", write)


def _generations_share_a_folder() -> Any:
    folder = CheckpointLayout(f"{LAYOUT.checkpoints(TRIAL)}/gen-0001")
    return patch.object(RunLayout, "generation", lambda self, *place: folder)


def _manifest_first() -> Any:
    """The manifest is published before the shards are written."""
    real_put, real_publish, later = product._put_shard, product._publish, []

    def put(store: Store, path: str, file: Path, may: Callable[[], None]) -> product.Shard:
        later.append((store, path, file, may))
        data = file.read_bytes()
        return product.Shard(file.name, len(data), product.hashlib.sha256(data).hexdigest())

    def publish(store: Store, path: str, manifest: product.CheckpointManifest) -> bytes:
        content = real_publish(store, path, manifest)
        while later:
            real_put(*later.pop(0))
        return content

    return patch.multiple(product, _put_shard=put, _publish=publish)


def _nothing_is_synced() -> Any:
    """A store that takes the end of a write for its being on disk."""
    return patch.object(Disk, "syncs", False)


def _nothing_is_read_back() -> Any:
    """A shard that was written counts as stored."""

    def put(store: Store, path: str, file: Path, may: Callable[[], None]) -> product.Shard:
        new = store.create(path)
        new.write(file.read_bytes())
        written = new.publish()
        return product.Shard(file.name, written.size, written.sha256)

    return patch.object(product, "_put_shard", put)


def _nothing_is_verified() -> Any:
    """The manifest is trusted: its shards are fetched as they are."""

    def fetched(store: Store, checkpoint: Checkpoint, path: str, shard: product.Shard) -> Iterator[bytes]:
        yield from store.pieces(path)

    return patch.object(product, "_fetched", fetched)


def _errors_are_success() -> Any:
    """When putting the manifest fails, it is taken for an answer that was lost."""

    def publish(store: Store, path: str, manifest: product.CheckpointManifest) -> bytes:
        content = product.msgspec.json.encode(manifest)
        try:
            created = store.put_if_absent(path, content)
        except OSError:
            created = True
        if not created:
            raise CheckpointError("there is another one")
        return content

    return patch.object(product, "_publish", publish)


# ---- mistakes of who deletes


def _data_is_deleted_first() -> Any:
    def delete(store: Store, checkpoint: Checkpoint) -> None:
        folder = checkpoint.manifest.rpartition("/")[0]
        for path in store.list(f"{folder}/data"):
            if product._step(path) == checkpoint.step:
                store.delete(path)
        store.delete(checkpoint.manifest)

    return patch.object(product, "delete", delete)


def _sweep_forgets_the_base() -> Any:
    real = product.collect_garbage

    def sweep(store: Store, layout: RunLayout, trial: Any, kept: Any, before: Any) -> None:
        real(store, layout, trial, [], before)

    return patch.object(product, "collect_garbage", sweep)


def _deleted_before_it_is_written_down() -> Any:
    """What the new checkpoint makes superfluous is deleted, and then the new one is journalled."""
    real = Driver.handle

    def handle(self: Driver, event: on.Event) -> None:
        write_down = self.write_down

        def late(records: Sequence[AnyRecord]) -> None:
            for each in records:
                if isinstance(each, CheckpointAcknowledged):
                    kept = [known for known in self._world.trial.retained if known != each.checkpoint]
                    for doomed in kept:
                        product.delete(self.journal._store, doomed)
            write_down(records)

        with patch.object(self, "write_down", late):
            real(self, event)

    return patch.object(Driver, "handle", handle)


# ---- mistakes of drivers


def _no_generation_is_fenced() -> Any:
    """The driver acknowledges what any generation has written."""

    real = RunMachine.on_message

    def on_message(self: RunMachine, agent: AgentId, message: m.MemberMessage, at: float) -> list[do.Command]:
        gang = self.sweep.gangs.get(message.member.trial)
        if gang is None or not isinstance(message, m.CheckpointStored):
            return real(self, agent, message, at)
        doomed = self.sweep.acknowledge(gang, message.checkpoint)
        return [
            do.Send(agent, m.AckCheckpoint(message.member, message.checkpoint), durable=True),
            do.DeleteCheckpoints(gang.trial, tuple(doomed)),
        ]

    return patch.object(RunMachine, "on_message", on_message)


def _not_written_down(*kinds: type[AnyRecord]) -> Any:
    real = Driver.write_down

    def write_down(self: Driver, records: Sequence[AnyRecord]) -> None:
        real(self, [each for each in records if not isinstance(each, kinds)])

    return patch.object(Driver, "write_down", write_down)


def _acknowledged_in_memory() -> Any:
    return _not_written_down(CheckpointAcknowledged)


def _fenced_in_memory() -> Any:
    return _not_written_down(GangFormed)


def _the_journal_is_overwritten() -> Any:
    """The store has no put-if-absent, without any error."""
    real = Disk.put_if_absent

    def put(self: Disk, path: str, data: bytes) -> bool:
        if path.startswith(LAYOUT.journal.path):
            self.files.pop(path, None)
        return real(self, path, data)

    return patch.object(Disk, "put_if_absent", put)


def _no_driver_is_deposed() -> Any:
    return patch.object(Journal, "_check_rivals", lambda self: None)


MUTANTS = {
    "the agent deletes": (_agent_deletes, "LOST"),
    "generations share a folder": (_generations_share_a_folder, "LOST|FORKED|cannot be resumed"),
    "the manifest is first": (_manifest_first, "INCOMPLETE|LOST"),
    "nothing is synced": (_nothing_is_synced, "LOST|INCOMPLETE"),
    "nothing is read back": (_nothing_is_read_back, "LOST|INCOMPLETE"),
    "nothing is verified": (_nothing_is_verified, "CORRUPT|resumes with other data"),
    "errors are success": (_errors_are_success, "LOST"),
    "the data is deleted first": (_data_is_deleted_first, "INCOMPLETE"),
    "a sweep forgets the base": (_sweep_forgets_the_base, "LOST|cannot be resumed"),
    "deleted before it is written down": (_deleted_before_it_is_written_down, "LOST"),
    "no generation is fenced": (_no_generation_is_fenced, "FORKED|LOST"),
    "acknowledged in memory": (_acknowledged_in_memory, "LOST"),
    "fenced in memory": (_fenced_in_memory, "FORKED"),
    "the journal is overwritten": (_the_journal_is_overwritten, "LOST|FORKED"),
    "no driver is deposed": (_no_driver_is_deposed, "LOST|FORKED"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_histories_find_the_mistake(mutant: str) -> None:
    mistake, words = MUTANTS[mutant]
    with mistake(), pytest.raises(AssertionError, match=words):
        run(HISTORIES)
