"""Snapshots of a trial that a test writes as checkpoints, and what a checkpoint must hold then."""

from pathlib import Path
from typing import Any
from uuid import uuid4

from sparktrain.ids import Generation, Member, RunId, TrialId
from sparktrain.state.checkpoints import Checkpoint
from sparktrain.store.base import Store
from sparktrain.store.checkpoints import MANIFEST, Draft, fetch, write
from sparktrain.store.layout import RunLayout

LAYOUT = RunLayout("run")
TRIAL = TrialId(3)
NAMES = ("state.json", "tensors-00000.safetensors")


def member(generation: int) -> Member:
    return Member(RunId("run"), TRIAL, Generation(generation))


def content(generation: int, step: int) -> dict[str, bytes]:
    """What the snapshot of a step holds: another one for each generation."""
    return {name: f"{name} of step {step} in generation {generation}".encode() * 3 for name in NAMES}


def draft(tmp_path: Path, step: int, generation: int = 1, **fields: Any) -> Draft:
    """A snapshot in a folder of its own."""
    folder = tmp_path / f"snapshot-{generation}-{step}-{uuid4().hex}"
    folder.mkdir(parents=True)
    for name, data in content(generation, step).items():
        (folder / name).write_bytes(data)
    return Draft(member(generation), step, folder, **fields)


def put(store: Store, tmp_path: Path, step: int, generation: int = 1, **fields: Any) -> Checkpoint:
    """Write the checkpoint of a step."""
    return write(store, LAYOUT, draft(tmp_path, step, generation, **fields))


def loaded(store: Store, checkpoint: Checkpoint, tmp_path: Path, cache: Path | None = None) -> dict[str, bytes]:
    """What a member that resumes from the checkpoint would get."""
    folder = tmp_path / f"fetched-{uuid4().hex}"
    fetch(store, checkpoint, folder, cache)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != MANIFEST}
