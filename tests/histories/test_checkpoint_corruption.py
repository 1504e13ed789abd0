"""Any corruption of a checkpoint is detected, and the previous one is resumed from: never other data.

Tests change every byte, cut to every length, and delete, swap or replace every file.
"""

import hashlib
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import msgspec
import pytest

from sparktrain.base.ids import Generation, Member, RunId, TrialId
from sparktrain.rundir.checkpoints import CheckpointManifest, Draft, write
from sparktrain.rundir.layout import RunLayout
from sparktrain.state.checkpoint_history import Checkpoint, CheckpointHistory
from tests.unit.rundir.snapshots import NAMES, content, draft, loaded, put, quick_folder, resumed
from tests.unit.store.gated import MemoryStore


class Shelf:
    """Two acknowledged checkpoints, steps 1 and 2; any change of the second must be detected."""

    def __init__(self, local: Path) -> None:
        self.local = local
        self.store = MemoryStore()
        self.before, self.newest = put(self.store, local, 1), put(self.store, local, 2)
        self.files = dict(self.store.files)
        self.data = msgspec.json.decode(self.store.read(self.newest.manifest), type=CheckpointManifest).data

    def paths(self) -> list[str]:
        return [self.newest.manifest, *(f"{self.data}.{name}" for name in NAMES)]

    def check(self, changes: dict[str, bytes | None]) -> None:
        """With these files changed or missing, the previous checkpoint is resumed from."""
        self.store.files = {**self.files, **changes}
        for path in [path for path, data in changes.items() if data is None]:
            del self.store.files[path]
        trial = CheckpointHistory([self.before, self.newest])
        found = resumed(self.store, trial, self.local)
        assert found == (self.before, content(1, 1)), f"{list(changes)} went unnoticed"
        [(damaged, reason)] = trial.corrupt
        assert damaged == self.newest
        assert self.newest.manifest in reason


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    with quick_folder() as local:
        yield Shelf(local)


def changed_bytes(data: bytes) -> Iterator[bytes]:
    for index, byte in enumerate(data):
        for bit in (0x01, 0x80):
            yield data[:index] + bytes([byte ^ bit]) + data[index + 1 :]


def test_every_changed_byte_is_found(shelf: Shelf) -> None:
    for path in shelf.paths():
        for data in changed_bytes(shelf.files[path]):
            shelf.check({path: data})


def test_every_other_length_is_found(shelf: Shelf) -> None:
    for path in shelf.paths():
        whole = shelf.files[path]
        for size in range(len(whole)):
            shelf.check({path: whole[:size]})
        for more in (b"\0", b"\n", whole):
            shelf.check({path: whole + more})


def test_every_missing_file_is_found(shelf: Shelf) -> None:
    for count in range(1, len(shelf.paths()) + 1):
        for paths in combinations(shelf.paths(), count):
            shelf.check(dict.fromkeys(paths))


def test_every_swap_is_found(shelf: Shelf) -> None:
    for one, other in combinations(shelf.paths(), 2):
        shelf.check({one: shelf.files[other], other: shelf.files[one]})


def elsewhere(shelf: Shelf) -> Iterator[tuple[str, Checkpoint]]:
    """Checkpoints of another step, generation, trial and run, in the same store."""
    yield "step", put(shelf.store, shelf.local, 3)
    yield "generation", put(shelf.store, shelf.local, 2, generation=2)
    for name, run, trial in (("trial", "run", 4), ("run", "other", 0)):
        of_it = draft(shelf.local, 2, generation=9)
        member = Member(RunId(run), TrialId(trial), Generation(1))
        yield name, write(shelf.store, RunLayout(run), Draft(member, 2, of_it.folder))


def test_files_of_other_checkpoints_are_found(shelf: Shelf) -> None:
    """Each file alone, all shards together, and the whole checkpoint with its manifest."""
    others = list(elsewhere(shelf))
    shelf.files = dict(shelf.store.files)
    for what, other in others:
        manifest = shelf.files[other.manifest]
        data = msgspec.json.decode(manifest, type=CheckpointManifest).data
        shards = {f"{shelf.data}.{name}": shelf.files[f"{data}.{name}"] for name in NAMES}
        assert all(shelf.files[path] != shard for path, shard in shards.items()), what
        for path, shard in shards.items():
            shelf.check({path: shard})
        shelf.check(shards)
        shelf.check({shelf.newest.manifest: manifest})
        shelf.check({shelf.newest.manifest: manifest, **shards})


def test_a_manifest_with_the_right_digest_cannot_lead_elsewhere(shelf: Shelf) -> None:
    """Files of another step, generation, trial or run are refused even with a digest from the coordinator."""
    for what, other in list(elsewhere(shelf)):
        shelf.store.files[shelf.newest.manifest] = shelf.store.files[other.manifest]
        digest = hashlib.sha256(shelf.store.files[other.manifest]).hexdigest()
        trial = CheckpointHistory([shelf.before, msgspec.structs.replace(shelf.newest, digest=digest)])
        assert resumed(shelf.store, trial, shelf.local) == (shelf.before, content(1, 1)), what


def test_files_that_do_not_belong_to_a_checkpoint_are_not_fetched(shelf: Shelf) -> None:
    for path in (f"{shelf.data}.tensors-00002.safetensors", f"{shelf.data}/deep/er", f"{shelf.newest.manifest}.bak"):
        shelf.store.files = {**shelf.files, path: b"more"}
        assert loaded(shelf.store, shelf.newest, shelf.local) == content(1, 2)


def test_when_all_are_corrupt_training_does_not_restart_at_step_0(shelf: Shelf) -> None:
    shelf.store.files = {path: data[:-1] for path, data in shelf.files.items()}
    trial = CheckpointHistory([shelf.before, shelf.newest])
    assert resumed(shelf.store, trial, shelf.local) == (None, {})
    assert trial.all_corrupt
    assert [each for each, _ in trial.corrupt] == [shelf.newest, shelf.before]
