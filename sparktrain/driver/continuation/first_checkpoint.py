"""The first records of a run that starts from the checkpoint of another one."""

from itertools import islice

import msgspec

from sparktrain.base.ids import TrialId
from sparktrain.driver.prepare.run_definition import RunDefinition
from sparktrain.rundir.checkpoint_copy import copy_checkpoint
from sparktrain.runs.history import StoredRun
from sparktrain.runs.locate import place_of
from sparktrain.search.space import ListedSpace
from sparktrain.state.records import AnyRecord, CheckpointAcknowledged, TrialsAdded


def first_records(definition: RunDefinition, stored_run: StoredRun | None) -> tuple[AnyRecord, ...]:
    """The only trial and its copied checkpoint; nothing where the journal has the trial, or the run starts at step 0.

    Call it before the run is claimed: of two drivers that copy side by side, one manifest counts. Blocks on both
    stores. Raises CheckpointError for a checkpoint that was deleted or is corrupt, OSError when a store fails.
    """
    origin = definition.plan.origin
    if origin is msgspec.UNSET or (stored_run is not None and stored_run.opened.records):
        return ()
    assert isinstance(definition.space, ListedSpace)
    source = place_of(origin.directory, definition.store.address.timeout_s).store
    copied = copy_checkpoint(source, origin.checkpoint, definition.store, definition.layout)
    added = TrialsAdded(cases=tuple(islice(definition.space, 1)), exhausted=True, asked=1, observed=0)
    return (added, CheckpointAcknowledged(trial=TrialId(0), checkpoint=copied))
