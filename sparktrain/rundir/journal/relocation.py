"""Records of a journal at the place where its run directory is now.

A record names a checkpoint by its path in the store, which starts with the name of the run directory. A directory that
was renamed or copied has another name, and its checkpoints are in itself: the rest of the path counts.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from sparktrain.rundir.layout import within
from sparktrain.state.records import (
    AnyRecord,
    CheckpointAcknowledged,
    CheckpointCorrupt,
    CheckpointsDropped,
    Exploited,
)


def relocated(records: Iterable[AnyRecord], run: str) -> Iterator[AnyRecord]:
    """The records, with each checkpoint in the folder `run` of the store."""
    for record in records:
        if isinstance(record, CheckpointAcknowledged | Exploited):
            checkpoint = record.checkpoint
            yield replace(record, checkpoint=replace(checkpoint, manifest=within(run, checkpoint.manifest)))
        elif isinstance(record, CheckpointCorrupt):
            yield replace(record, manifest=within(run, record.manifest))
        elif isinstance(record, CheckpointsDropped):
            yield replace(record, manifests=tuple(within(run, manifest) for manifest in record.manifests))
        else:
            yield record
