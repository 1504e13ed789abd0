"""A checkpoint that another run starts from: a copy of its own, whole or not at all."""

from pathlib import Path

import pytest

from sparktrain.base.ids import Generation, Member, Rank, RunId, TrialId
from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import CheckpointError
from sparktrain.rundir import checkpoints
from sparktrain.rundir.checkpoint_copy import copy_checkpoint
from sparktrain.rundir.checkpoints import Draft
from sparktrain.rundir.layout import RunLayout
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.store.base import Store
from sparktrain.store.url import open_store
from tests.unit.rundir.snapshots import loaded, part_content, part_draft

OLD, NEW = RunLayout("old"), RunLayout("new")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(StoreAddress(str(tmp_path / "runs")))


@pytest.fixture
def written(tmp_path: Path, store: Store) -> Checkpoint:
    """A checkpoint of generation 2 of trial 7, with two shards."""
    folder = tmp_path / "snapshot"
    folder.mkdir()
    (folder / "a").write_bytes(b"a" * 1000)
    (folder / "b").write_bytes(b"")
    member = Member(RunId("old"), TrialId(7), Generation(2), Rank(0))
    return checkpoints.write(store, OLD, Draft(member, 40, folder, score=0.5))


def test_a_copy_is_a_checkpoint_of_the_new_run_and_needs_no_file_of_the_old_one(
    store: Store, written: Checkpoint, tmp_path: Path
) -> None:
    made = copy_checkpoint(store, written, store, NEW)
    assert (made.generation, made.step, made.score) == (Generation(0), 40, 0.5)
    store.delete_all(store.list("old"))
    checkpoints.fetch(store, made, tmp_path / "fetched")
    assert (tmp_path / "fetched" / "a").read_bytes() == b"a" * 1000
    manifest = checkpoints.manifest_of(store, made)
    assert (manifest.run, manifest.trial, manifest.generation, manifest.parent) == ("new", 0, 0, "")
    assert checkpoints.left_over(store, NEW, TrialId(0), [made]) == []


def test_a_copy_of_what_all_members_wrote_has_one_writer(store: Store, tmp_path: Path) -> None:
    drafts = [part_draft(tmp_path, 40, rank, run="old") for rank in range(3)]
    parts = [checkpoints.write_part(store, OLD, draft) for draft in drafts]
    written = checkpoints.commit(store, OLD, drafts[0], parts)
    assert checkpoints.manifest_of(store, written).version == checkpoints.PARTS_VERSION
    copy = copy_checkpoint(store, written, store, NEW)
    store.delete_all(store.list("old"))
    whole = part_content(1, 40, 0) | part_content(1, 40, 1) | part_content(1, 40, 2)
    assert loaded(store, copy, tmp_path) == whole
    assert checkpoints.manifest_of(store, copy).version == checkpoints.VERSION
    assert checkpoints.left_over(store, NEW, TrialId(0), [copy]) == []


def test_a_second_call_finds_the_copy_even_when_the_old_run_is_gone(store: Store, written: Checkpoint) -> None:
    made = copy_checkpoint(store, written, store, NEW)
    store.delete_all(store.list("old"))
    assert copy_checkpoint(store, written, store, NEW) == made


@pytest.mark.parametrize("part", ["shard", "no shard", "manifest", "no manifest"])
def test_a_corrupt_checkpoint_has_no_copy(store: Store, written: Checkpoint, part: str) -> None:
    path = next(each for each in store.list("old") if ("data/" in each) == ("shard" in part) and not each.endswith("b"))
    store.delete(path)
    if not part.startswith("no"):
        store.put_if_absent(path, b"other")
    with pytest.raises(CheckpointError, match=r"corrupt|is missing"):
        copy_checkpoint(store, written, store, NEW)
    assert not store.exists(NEW.generation(TrialId(0), Generation(0)).manifest(40))
