"""The fourth stage of a run: this driver owns its journal."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import msgspec

from sparktrain.base.ids import TrialId
from sparktrain.datasets.manifest import MemberData
from sparktrain.driver.data.run_data import write_data
from sparktrain.driver.journal_writer import JournalPort
from sparktrain.driver.prepare.naming import NamedRun, put_run_json
from sparktrain.driver.prepare.run_definition import RunDefinition
from sparktrain.errors import DeposedError
from sparktrain.rundir.checkpoint_copy import copy_checkpoint
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.reader import JournalContents
from sparktrain.rundir.journal.writer import Journal
from sparktrain.runs.history import StoredRun
from sparktrain.runs.locate import place_of
from sparktrain.search.space import ListedSpace
from sparktrain.state.ending import Ending
from sparktrain.state.records import AnyRecord, CheckpointAcknowledged, RunEnded, TrialsAdded

logger = logging.getLogger("sparktrain")


@dataclass(frozen=True, kw_only=True)
class OwnedRun:
    """A named run with the journal that this driver writes."""

    run: NamedRun
    journal: JournalPort
    contents: JournalContents
    """What the journal had when this driver took it over."""
    id: str = ""
    """The same under every driver of the run, and of no other run; a copy of its directory gets another one."""

    @cached_property
    def definition(self) -> RunDefinition:
        """What the run is."""
        return self.run.definition

    def give_back(self, reason: str) -> None:
        """Record that this driver ends the run before it started: any driver may have it. Blocks on the store."""
        try:
            self.journal.append([RunEnded(ending=Ending.UNPREPARED, reason=reason)])
        except (OSError, DeposedError) as error:
            logger.debug("run %s stays with this driver: %s", self.definition.spec.name, error)

    def write_data(self, show: Callable[[str], None]) -> MemberData:
        """Write each dataset that the directory lacks; returns where members find them. `show` gets lines about it.

        Blocks on the store and Spark's jobs. Raises DataError, also for fewer rows than members, ResumeError where a
        dataset is missing and has no source here, OSError.
        """
        definition = self.definition
        call = self.run.call
        workers = definition.spec.gang.workers
        data_refs = write_data(call.data, definition.documents, definition.store, definition.layout, show, workers)
        return msgspec.structs.replace(call.cache, sets=data_refs)


def claim(run: NamedRun, driver: DriverIdentity) -> OwnedRun:
    """Take over the journal for `driver`: others find it there. Blocks on the store; raises OSError.

    A run that starts from the checkpoint of another one has a copy then, as its first checkpoint.
    """
    definition = run.definition
    seeds = first_records(definition, run.stored_run)
    # Claim, then look: a removal that was running has deleted `run.json`, and cannot delete anything after the claim.
    journal, contents = Journal.claim(definition.store, definition.layout.journal, driver)
    if not definition.store.exists(definition.layout.spec):
        put_run_json(run)
    if seeds and not contents.records:
        journal.append(seeds)
        contents = msgspec.structs.replace(contents, records=seeds)
    return OwnedRun(run=run, journal=journal, contents=contents, id=journal.run)


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
