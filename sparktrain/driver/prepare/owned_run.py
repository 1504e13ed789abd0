"""The fourth stage of a run: this driver owns its journal."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import msgspec

from sparktrain.datasets.manifest import MemberData
from sparktrain.driver.continuation.first_checkpoint import first_records
from sparktrain.driver.data.run_data import write_data
from sparktrain.driver.journal_writer import JournalPort
from sparktrain.driver.prepare.naming import NamedRun, put_run_json
from sparktrain.driver.prepare.run_definition import RunDefinition
from sparktrain.errors import DeposedError
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.reader import JournalContents
from sparktrain.rundir.journal.writer import Journal
from sparktrain.state.ending import Ending
from sparktrain.state.records import RunEnded

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
