"""Snapshots of a trial that tests write as checkpoints, and the expected content of a checkpoint."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from sparktrain.base.ids import Generation, Member, Rank, RunId, TrialId
from sparktrain.errors import CheckpointError
from sparktrain.rundir.checkpoints import MANIFEST, Draft, commit, fetch, write, write_part
from sparktrain.rundir.layout import RunLayout
from sparktrain.state.checkpoint_history import Checkpoint, CheckpointHistory
from sparktrain.store.base import Store

LAYOUT = RunLayout("run")
TRIAL = TrialId(0)
NAMES = ("state.json", "tensors-00000.safetensors", "tensors-00001.safetensors")


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A local folder, in memory where that is possible: for tests that make thousands of folders."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(prefix="sparktrain-test-", dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def member(generation: int) -> Member:
    return Member(RunId("run"), TRIAL, Generation(generation))


def content(generation: int, step: int) -> dict[str, bytes]:
    """The content of the snapshot of a step, different for each generation."""
    return {name: f"{name} of step {step} in generation {generation}".encode() for name in NAMES}


def draft(tmp_path: Path, step: int, generation: int = 1, **fields: Any) -> Draft:
    """A snapshot in a new folder."""
    folder = tmp_path / f"snapshot-{generation}-{step}-{uuid4().hex}"
    folder.mkdir(parents=True)
    for name, data in content(generation, step).items():
        (folder / name).write_bytes(data)
    return Draft(member(generation), step, folder, **fields)


def put(store: Store, tmp_path: Path, step: int, generation: int = 1, **fields: Any) -> Checkpoint:
    """Write the checkpoint of a step, in one thread so that the operations have an order."""
    return write(store, LAYOUT, draft(tmp_path, step, generation, **fields), threads=1)


def part_content(generation: int, step: int, rank: int) -> dict[str, bytes]:
    """The content of what one member writes of a checkpoint that all members write."""
    names = ("state.json", "slices-0000.json") if not rank else (f"slices-{rank:04d}.json",)
    return {name: f"{name} of step {step} in generation {generation}".encode() for name in names}


def part_draft(tmp_path: Path, step: int, rank: int, generation: int = 1, run: str = "run") -> Draft:
    """The snapshot of one member in a new folder."""
    folder = tmp_path / f"part-{generation}-{step}-{rank}-{uuid4().hex}"
    folder.mkdir(parents=True)
    for name, data in part_content(generation, step, rank).items():
        (folder / name).write_bytes(data)
    return Draft(Member(RunId(run), TRIAL, Generation(generation), Rank(rank)), step, folder)


def put_parts(store: Store, layout: RunLayout, tmp_path: Path, step: int, size: int, generation: int = 1) -> Checkpoint:
    """Write the checkpoint of a step as `size` members do, in one thread."""
    drafts = [part_draft(tmp_path, step, rank, generation) for rank in range(size)]
    return commit(store, layout, drafts[0], [write_part(store, layout, draft, threads=1) for draft in drafts])


def loaded(store: Store, checkpoint: Checkpoint, tmp_path: Path, cache: Path | None = None) -> dict[str, bytes]:
    """The files that a member gets when it resumes from the checkpoint."""
    folder = tmp_path / f"fetched-{uuid4().hex}"
    fetch(store, checkpoint, folder, cache, threads=1)
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != MANIFEST}
    shutil.rmtree(folder)
    return files


def resumed(store: Store, trial: CheckpointHistory, tmp_path: Path) -> tuple[Checkpoint | None, dict[str, bytes]]:
    """The checkpoint and files with which the next gang resumes, after each report of corruption by an agent."""
    while (newest := trial.newest) is not None:
        try:
            return newest, loaded(store, newest, tmp_path)
        except CheckpointError as error:
            trial.mark_corrupt(newest.manifest, str(error))
    return None, {}
