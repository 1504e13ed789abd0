"""Copies a checkpoint of one run into another, which then depends on no file of the first."""

import hashlib
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from sparktrain.base.ids import Generation, RunId, TrialId
from sparktrain.errors import CheckpointError
from sparktrain.rundir.checkpoints import VERSION, manifest_of
from sparktrain.rundir.layout import RunLayout
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.checkpoint_parts import Shard
from sparktrain.store.base import Store

BEFORE = Generation(0)
"""The generation of a checkpoint that no gang of its run has written."""
_FIRST = TrialId(0)


def copy_checkpoint(source: Store, checkpoint: Checkpoint, store: Store, layout: RunLayout) -> Checkpoint:
    """The checkpoint as one of generation 0 of the only trial of a run. Blocks: reads and writes all of the data.

    The manifest comes last, by put-if-absent: after a crash the next call finds the finished copy, or copies it
    again under fresh names. Raises CheckpointError when the checkpoint is corrupt or was deleted, OSError when a store
    fails.
    """
    place = layout.generation(_FIRST, BEFORE)
    path = place.manifest(checkpoint.step)
    if not store.exists(path):
        manifest = manifest_of(source, checkpoint)
        data = place.data(checkpoint.step, uuid4().hex)
        copy = replace(
            manifest,
            version=VERSION,
            run=RunId(layout.path),
            trial=_FIRST,
            generation=BEFORE,
            parent="",
            data=data,
            shards=tuple(replace(shard, data="") for shard in manifest.shards),  # one writer copies those of all
            writer="refit",
        )
        for shard, target in zip(manifest.shards, copy.shards, strict=True):
            _copy_shard(source, manifest.path(shard), store, copy.path(target), shard)
        store.put_if_absent(path, msgspec.json.encode(copy))
    digest = hashlib.sha256(store.read(path)).hexdigest()
    return replace(checkpoint, generation=BEFORE, manifest=path, digest=digest)


def _copy_shard(source: Store, path: str, store: Store, target: str, shard: Shard) -> None:
    new_file = store.create(target)
    try:
        try:
            for piece in source.pieces(path):
                new_file.write(piece)
        except FileNotFoundError as error:
            raise CheckpointError(f"{source.where(path)} of a checkpoint is missing: pass another trial") from error
        written = new_file.publish()
    finally:
        new_file.discard()
    if (written.size, written.sha256) != (shard.size, shard.sha256):
        raise CheckpointError(
            f"{source.where(path)} of a checkpoint is corrupt: it has SHA-256 {written.sha256}, and {shard.sha256} was "
            "written; pass from_checkpoint='none' to train from step 0"
        )
