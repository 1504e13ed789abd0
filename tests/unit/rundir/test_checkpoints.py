"""Checkpoints in a store: written, fetched, corrupted, deleted, and written by a replaced writer."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sparktrain.base.ids import Generation
from sparktrain.errors import CheckpointError
from sparktrain.rundir.checkpoints import (
    MANIFEST,
    Listed,
    collect_garbage,
    commit,
    delete,
    fetch,
    left_over,
    listed,
    placed,
    write,
    write_part,
)
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.store.localfs import LocalStore
from tests.unit.rundir.snapshots import LAYOUT, NAMES, TRIAL, content, draft, loaded, member, part_draft, put
from tests.unit.store.gated import FailAt, GatedStore, fault

FOLDER = "run/trials/0000/checkpoints"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "runs")


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """A folder for snapshots."""
    (tmp_path / "local").mkdir()
    return tmp_path / "local"


def refuse_all(name: str, effect: Callable[[], Any]) -> Any:
    raise AssertionError(f"the store was asked to {name}")


def test_a_written_checkpoint_is_fetched(store: LocalStore, local: Path) -> None:
    checkpoint = put(store, local, 7, parent="abc", keep=3, score=0.5, writer="agent-1")
    assert loaded(store, checkpoint, local) == content(1, 7)
    assert checkpoint == Checkpoint(
        Generation(1), 7, f"{FOLDER}/gen-0001/manifest-00000007", checkpoint.digest, keep=3, score=0.5
    )


def test_a_part_at_another_place_makes_no_checkpoint(store: LocalStore, local: Path) -> None:
    """The agent of another member has reported it: no manifest may lead to the files of another trial."""
    drafts = [part_draft(local, 7, rank) for rank in range(2)]
    chief, other = (write_part(store, LAYOUT, draft) for draft in drafts)
    for attempt in ("../../../0004/checkpoints/gen-0001/data/00000007-x", "x/../../y"):
        with pytest.raises(CheckpointError, match=r"the parts of step 7 make no checkpoint: its shards in '.*', where"):
            commit(store, LAYOUT, drafts[0], [chief, replace(other, attempt=attempt)])
    twice = replace(other, shards=chief.shards)
    with pytest.raises(CheckpointError, match="two shards of the name"):
        commit(store, LAYOUT, drafts[0], [chief, twice])
    assert listed(store, LAYOUT, TRIAL) == []


def test_the_manifest_describes_the_checkpoint(store: LocalStore, local: Path) -> None:
    checkpoint = put(store, local, 7, generation=2, parent="abc", writer="agent-1")
    raw = store.read(checkpoint.manifest)
    manifest = json.loads(raw)
    data = manifest.pop("data")
    assert hashlib.sha256(raw).hexdigest() == checkpoint.digest
    assert data.startswith(f"{FOLDER}/gen-0002/data/00000007-")
    assert manifest == {
        "version": 1,
        "run": "run",
        "trial": 0,
        "generation": 2,
        "step": 7,
        "parent": "abc",
        "shards": [
            {"name": name, "size": len(bytes_), "sha256": hashlib.sha256(bytes_).hexdigest()}
            for name, bytes_ in content(2, 7).items()
        ],
        "keep": 2,
        "score": None,
        "writer": "agent-1",
    }
    assert store.list() == [*(f"{data}.{name}" for name in NAMES), checkpoint.manifest]


def test_an_empty_snapshot_is_refused(store: LocalStore, local: Path) -> None:
    empty = draft(local, 1)
    for path in empty.folder.iterdir():
        path.unlink()
    with pytest.raises(CheckpointError, match="of step 1 has no files"):
        write(store, LAYOUT, empty)
    assert store.list() == []


def test_an_attempt_that_must_end_is_not_published(store: LocalStore, local: Path) -> None:
    def check() -> None:
        if store.list():
            raise TimeoutError("too late")

    with pytest.raises(TimeoutError):
        write(store, LAYOUT, draft(local, 1), check)
    assert listed(store, LAYOUT, TRIAL) == []


# ---- the local copy


def test_a_copy_on_the_local_disk_spares_the_store(store: LocalStore, local: Path) -> None:
    snapshot = draft(local, 1)
    checkpoint = write(store, LAYOUT, snapshot)
    nothing = GatedStore(store, refuse_all)
    assert loaded(nothing, checkpoint, local, snapshot.folder) == content(1, 1)
    fetched = local / "again"
    fetch(nothing, checkpoint, fetched, snapshot.folder)
    shutil.rmtree(snapshot.folder)
    assert loaded(nothing, checkpoint, local, fetched) == content(1, 1)


@pytest.mark.parametrize("name", [*NAMES, MANIFEST])
@pytest.mark.parametrize("how", ["corrupt", "delete"])
def test_a_bad_copy_is_replaced_from_the_store(store: LocalStore, local: Path, name: str, how: str) -> None:
    snapshot = draft(local, 1)
    checkpoint = write(store, LAYOUT, snapshot)
    data = (snapshot.folder / name).read_bytes()
    (snapshot.folder / name).unlink()
    if how == "corrupt":
        (snapshot.folder / name).write_bytes(b"?" + data[1:])
    assert loaded(store, checkpoint, local, snapshot.folder) == content(1, 1)


@pytest.mark.parametrize("call", [(os, "link"), (Path, "read_bytes")])
def test_a_copy_that_the_disk_cannot_read_is_replaced_from_the_store(
    store: LocalStore, local: Path, monkeypatch: pytest.MonkeyPatch, call: tuple[object, str]
) -> None:
    snapshot = draft(local, 1)
    checkpoint, (where, name) = write(store, LAYOUT, snapshot), call
    real = getattr(where, name)

    def fail(path: Path, *rest: Any) -> Any:
        if snapshot.folder in Path(path).parents:
            raise fault()
        return real(path, *rest)

    monkeypatch.setattr(where, name, fail)
    fetch(store, checkpoint, local / "fetched", snapshot.folder)
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in (local / "fetched").iterdir() if path.name != MANIFEST} == content(
        1, 1
    )


# ---- corruption: see test_checkpoint_corruption too


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"version": 3}, "has version 3, and this sparktrain reads versions 1 and 2"),
        ({"step": 8}, "is for generation 1, step 8"),
        ({"generation": 2}, "is for generation 2, step 7"),
        ({"shards": [{"name": "../../x", "size": 0, "sha256": ""}]}, r"has a shard of the name '\.\./\.\./x'"),
        ({"shards": None}, "its manifest is invalid"),
        ({"shards": [{"name": "x", "size": 0, "sha256": ""}] * 2}, "has two shards of the name 'x'"),
        (
            {"shards": [{"name": "x", "size": 0, "sha256": "", "data": f"{FOLDER}/gen-0002/data/00000007-a"}]},
            "has its shards in '.*/gen-0002/data/00000007-a', where others write",
        ),
        (
            {"shards": [{"name": "x", "size": 0, "sha256": "", "data": f"{FOLDER}/gen-0001/data/../../x"}]},
            r"has its shards in '.*/data/\.\./\.\./x', where others write",
        ),
        ({"data": f"{FOLDER}/gen-0002/data/00000007-a"}, "has its shards in '.*', where others write"),
        ({"data": "run/trials/0004/checkpoints/gen-0001/data/00000007-a"}, "has its shards in '.*', where others"),
        ({"data": "../elsewhere"}, "has its shards in '../elsewhere', where others write"),
    ],
)
def test_a_manifest_that_makes_no_sense(store: LocalStore, local: Path, changes: dict[str, Any], problem: str) -> None:
    checkpoint = put(store, local, 7)
    raw = json.dumps(json.loads(store.read(checkpoint.manifest)) | changes).encode()
    Path(store.where(checkpoint.manifest)).write_bytes(raw)
    odd = Checkpoint(Generation(1), 7, checkpoint.manifest, hashlib.sha256(raw).hexdigest())
    with pytest.raises(CheckpointError, match=problem):
        loaded(store, odd, local)


def test_a_failure_of_the_store_is_not_corruption(store: LocalStore, local: Path) -> None:
    checkpoint = put(store, local, 7)
    failing = GatedStore(store, FailAt(1, "before", fault()))
    with pytest.raises(OSError, match="the store failed") as caught:
        fetch(failing, checkpoint, local / "fetched")
    assert not isinstance(caught.value, CheckpointError)
    assert not (local / "fetched").exists()


def test_an_existing_folder_is_left_alone(store: LocalStore, local: Path) -> None:
    checkpoint = put(store, local, 7)
    (local / "mine").mkdir()
    (local / "mine" / "file").touch()
    with pytest.raises(FileExistsError):
        fetch(store, checkpoint, local / "mine")
    assert (local / "mine" / "file").exists()


# ---- a writer that was replaced


def test_a_replaced_writer_overwrites_nothing_and_is_never_restored(store: LocalStore, local: Path) -> None:
    base = put(store, local, 1, generation=1)
    new = put(store, local, 2, generation=2, parent=base.digest)
    zombies = [put(store, local, step, generation=1, parent=base.digest) for step in (2, 3, 4)]
    assert loaded(store, base, local) == content(1, 1)
    assert loaded(store, new, local) == content(2, 2)
    for zombie in zombies:
        claimed = Checkpoint(new.generation, new.step, zombie.manifest, new.digest)
        with pytest.raises(CheckpointError, match="was acknowledged"):
            loaded(store, claimed, local)
    collect_garbage(store, LAYOUT, TRIAL, [base, new], Generation(2))
    assert [each.manifest for each in listed(store, LAYOUT, TRIAL)] == [base.manifest, new.manifest]
    assert loaded(store, base, local) == content(1, 1)


def test_a_second_chief_of_a_generation_is_refused(store: LocalStore, local: Path) -> None:
    first = put(store, local, 1, writer="agent-1")
    with pytest.raises(CheckpointError, match="exists already with other content: another chief"):
        put(store, local, 1, writer="agent-2")
    assert loaded(store, first, local) == content(1, 1)


def test_the_next_chief_of_a_ring_that_healed_has_names_of_its_own(store: LocalStore, local: Path) -> None:
    old = member(1)
    new = replace(old, incarnation=1)
    base = put(store, local, 1)
    zombie = put(store, local, 2)
    draft_of_successor = replace(draft(local, 2, parent=base.digest), member=new)
    mine = write(store, LAYOUT, draft_of_successor)
    assert mine.manifest.endswith("/gen-0001-restart-1/manifest-00000002")
    assert loaded(store, mine, local) == content(1, 2)
    forged = replace(zombie, digest=mine.digest)
    with pytest.raises(CheckpointError, match="was acknowledged"):
        loaded(store, forged, local)
    assert placed(LAYOUT, new, zombie) == replace(zombie, manifest=mine.manifest), "it counts at its own path alone"
    assert placed(LAYOUT, old, mine) == replace(mine, manifest=zombie.manifest)
    assert left_over(store, LAYOUT, TRIAL, [base, mine])[0] == zombie.manifest
    collect_garbage(store, LAYOUT, TRIAL, [base, mine], Generation(2))
    assert [each.manifest for each in listed(store, LAYOUT, TRIAL)] == [base.manifest, mine.manifest]
    assert loaded(store, mine, local) == content(1, 2)
    delete(store, mine)
    assert [each.manifest for each in listed(store, LAYOUT, TRIAL)] == [base.manifest]


# ---- faults of the store


def test_a_lost_answer_is_detected_by_the_next_attempt(store: LocalStore, local: Path) -> None:
    """The manifest is put, but the answer is lost, and the manifest cannot be read back."""
    broken = iter([fault(), fault()])

    def gate(name: str, effect: Callable[[], Any]) -> Any:
        result = effect()
        if name in ("put", "read"):
            raise next(broken)
        return result

    wanted = draft(local, 1, writer="agent-1")
    with pytest.raises(OSError, match="the store failed"):
        write(GatedStore(store, gate), LAYOUT, wanted)
    [published] = listed(store, LAYOUT, TRIAL)
    checkpoint = write(store, LAYOUT, wanted)
    assert checkpoint.manifest == published.manifest
    assert loaded(store, checkpoint, local) == content(1, 1)


def test_garbled_shards_are_not_published(store: LocalStore, local: Path) -> None:
    def gate(name: str, effect: Callable[[], Any]) -> Any:
        result = effect()
        if name == "publish":
            for path in store.list():
                Path(store.where(path)).write_bytes(b"garbled")
        return result

    with pytest.raises(OSError, match=r"was written, but has 7 of \d+ bytes") as caught:
        write(GatedStore(store, gate), LAYOUT, draft(local, 1), threads=1)
    assert not isinstance(caught.value, CheckpointError)
    assert listed(store, LAYOUT, TRIAL) == []


# ---- for people, and after the last gang


def test_listed(store: LocalStore, local: Path) -> None:
    second, first = put(store, local, 5, generation=2), put(store, local, 10)
    store.put_if_absent(f"{FOLDER}/gen-0002/manifest-00000006", b"{}")
    store.put_if_absent(f"{FOLDER}/notes.txt", b"")
    size = sum(map(len, content(1, 10).values()))
    found = listed(store, LAYOUT, TRIAL)
    assert found[0] == Listed(first.manifest, Generation(1), 10, size)
    assert (found[1].manifest, found[1].problem) == (second.manifest, "")
    assert found[2].problem.startswith("not a manifest: Object missing required field")
    assert len(found) == 3


def test_garbage_collection_leaves_kept_and_unfinished_files(store: LocalStore, local: Path) -> None:
    kept, _, current = put(store, local, 1), put(store, local, 2), put(store, local, 2, generation=2)
    store.put_if_absent(f"{FOLDER}/gen-0001/data/00000009-{0:032x}.state.json", b"failed")
    store.put_if_absent(f"{FOLDER}/gen-0002/data/00000003-{0:032x}.state.json", b"under way")
    store.put_if_absent(f"{FOLDER}/notes.txt", b"a user's")
    store.put_if_absent(f"{FOLDER}/gen-0001/data/00000009-notes.txt", b"a user's too")
    collect_garbage(store, LAYOUT, TRIAL, [kept], Generation(2))
    assert [each.manifest for each in listed(store, LAYOUT, TRIAL)] == [kept.manifest, current.manifest]
    assert len(store.list()) == 4 + 4 + 1 + 2
    assert loaded(store, kept, local) == content(1, 1)
