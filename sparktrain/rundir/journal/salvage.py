"""Repairs a corrupt journal: what is wrong, what is lost, and how the run can continue with the rest.

Records before the corruption are kept. Later records about trials that were added earlier are kept too: each holds
independently of the records between, and a trial with a result is not run a second time. Trials that were added after
the corruption are not kept, because their numbers are unknown.
"""

import re
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from sparktrain.base.ids import Generation, TrialId
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.journal_file import Followed, salvage
from sparktrain.rundir.journal.reader import Listing, Replay, Replayed, counts, read_stable, relocated, survey
from sparktrain.rundir.journal.run_claim import read_claim
from sparktrain.rundir.journal.writer import Journal, take
from sparktrain.rundir.layout import JournalLayout, RunLayout
from sparktrain.state.records import (
    AnyRecord,
    CheckpointAcknowledged,
    CheckpointCorrupt,
    CheckpointsDropped,
    GangFormed,
    TrialConcluded,
    TrialsAdded,
)
from sparktrain.store.base import Store

_TRACE = re.compile(r".*/trials/(?P<trial>\d+)/(?:generation-|checkpoints/gen-)(?P<generation>\d+)/.*")
"""Path of a file that a gang has left."""

_Fact = GangFormed | CheckpointAcknowledged | CheckpointCorrupt | CheckpointsDropped | TrialConcluded
"""Records that hold independently of others."""


class SalvageReport(Struct, frozen=True):
    """The state of a journal, and what a repair keeps."""

    problems: tuple[str, ...]
    """Why the journal cannot be read, one line per file; empty when it can."""
    notes: tuple[str, ...]
    """Unusual but harmless findings, one line each."""
    record_count: int
    """The number of records that can be kept."""
    again: tuple[TrialId, ...]
    """Trials that started and have no result among the kept records: the next driver runs them again."""

    @property
    def is_intact(self) -> bool:
        """Whether nothing needs a repair."""
        return not self.problems


def fsck(store: Store, layout: RunLayout) -> SalvageReport:
    """Check each file of the run's journal that counts. Any process may call it; blocks, and writes nothing.

    Raises RunDirectoryError for the journal of a later sparktrain, and OSError from the store.
    """
    return examine(store, layout)[0]


def repair(store: Store, layout: RunLayout, identity: DriverIdentity) -> SalvageReport:
    """Make a corrupt journal readable, with all records that `fsck` reports as kept; returns the report. Blocks.

    It takes over the run as a driver does, which deposes a live one, and writes the kept records as the first batch of
    a term that follows nothing. It changes and deletes no file, and leaves an intact journal as it is. Raises as `fsck`
    and `Journal.append` do; after an OSError another call completes the repair.
    """
    report, _ = examine(store, layout)
    if report.is_intact:
        return report
    listing = survey(store, layout.journal)
    claim = take(store, layout.journal, identity, listing.highest, read_claim(store, layout.journal, listing.term))
    # Once more: a live driver may have written until the term was taken.
    report, records = examine(store, layout)
    journal = Journal(store, layout.journal, claim, ())
    journal.append(records) if records else journal.settle()
    return report


def examine(store: Store, layout: RunLayout) -> tuple[SalvageReport, tuple[AnyRecord, ...]]:
    """The report, and the records that can be kept: all of them in an intact journal. Raises as `fsck`."""
    listing, replayed = read_stable(store, layout.journal, (), survey(store, layout.journal))
    notes = [*replayed.notes, *_oddities(store, layout.journal, listing, replayed)]
    if replayed.corruption is None:
        return SalvageReport((), tuple(notes), len(replayed.records), ()), replayed.records
    start, later = _rescued(store, layout.journal, listing, replayed)
    trial_count = _count_trials(start)
    traces = _traces(store, layout)
    records = _fenced([*start, *_facts(start, later, trial_count)], traces, trial_count)
    lost = sorted({record.trial for record in later if isinstance(record, _Fact) and record.trial >= trial_count})
    notes += [
        f"folder {store.where(layout.trial(trial))} belongs to a trial that cannot be kept: move it away before you "
        "resume the run, or it conflicts with the next trial of this number"
        for trial in sorted(traces)
        if trial >= trial_count
    ]
    problems = _problems(store, layout.journal, listing, replayed)
    return SalvageReport(problems, tuple(notes), len(records), (*_unfinished(records), *lost)), tuple(records)


def _problems(store: Store, layout: JournalLayout, listing: Listing, replayed: Replayed) -> tuple[str, ...]:
    replay = Replay(store, layout, listing)
    faults = ((batch, replay.batch(*batch).fault) for batch in replayed.unread[1:])
    return (
        str(replayed.corruption),
        *(f"{store.where(layout.batch(*batch))}: {fault}" for batch, fault in faults if fault is not None),
    )


def _oddities(store: Store, layout: JournalLayout, listing: Listing, replayed: Replayed) -> list[str]:
    """Notes on files that do not count, and on missing ones that are not needed."""
    late = sorted(batch for batch in listing.batches if not counts(replayed.chain, Followed(*batch)))
    lacking = sorted(set(range(1, listing.highest + 1)) - set(listing.terms))
    return [
        *(f"{store.where(path)} is not a file of a journal, and is left alone" for path in listing.foreign),
        *(f"{store.where(layout.term(term))} is missing: the driver of that term is unknown" for term in lacking),
        *(f"{store.where(layout.batch(*batch))} does not count: its driver had been deposed" for batch in late),
    ]


# ---- what can be kept


def _rescued(
    store: Store, layout: JournalLayout, listing: Listing, replayed: Replayed
) -> tuple[tuple[AnyRecord, ...], list[AnyRecord]]:
    """The longest readable start, possibly from a corrupt snapshot, and every intact record after it."""
    start = replayed.records
    paths = [layout.batch(*batch) for batch in replayed.unread]
    replay = Replay(store, layout, listing)
    for snapshot in sorted(listing.snapshots):
        records = replay.snapshot(*snapshot).records
        if counts(replayed.chain, Followed(*snapshot)) and _count_trials(records) > _count_trials(start):
            batches = [layout.batch(*batch) for batch in replayed.unread if batch > snapshot]
            start = records
            paths = [layout.snapshot(*snapshot), *batches]
    intact_records = (record for path in paths for record in _intact_records(store, path))
    return start, list(relocated(intact_records, layout.run))


def _intact_records(store: Store, path: str) -> tuple[AnyRecord, ...]:
    try:
        return salvage(store.read(path))
    except FileNotFoundError:
        return ()


def _count_trials(records: Iterable[AnyRecord]) -> int:
    """The number of trials that were added."""
    return sum(len(record.cases) * record.each for record in records if isinstance(record, TrialsAdded))


def _facts(start: Iterable[AnyRecord], later: Iterable[AnyRecord], trial_count: int) -> list[AnyRecord]:
    """The records of `later` that hold independently, without those that are in `start` already."""
    lines = {msgspec.json.encode(record) for record in start}
    facts: list[AnyRecord] = []
    for record in later:
        if (
            isinstance(record, _Fact)
            and record.trial < trial_count
            and (line := msgspec.json.encode(record)) not in lines
        ):
            lines.add(line)
            facts.append(record)
    return facts


def _traces(store: Store, layout: RunLayout) -> dict[TrialId, Generation]:
    """The highest generation of each trial with a file in the store."""
    traces: dict[TrialId, Generation] = {}
    for path in store.list(f"{layout.path}/trials"):
        if match := _TRACE.fullmatch(path):
            trial = TrialId(int(match["trial"]))
            generation = Generation(int(match["generation"]))
            traces[trial] = max(generation, traces.get(trial, generation))
    return traces


def _fenced(records: list[AnyRecord], traces: dict[TrialId, Generation], trial_count: int) -> list[AnyRecord]:
    """Add records of generations that have left files but no record: no gang may reuse their files."""
    formed = _formed(records)
    finished = _finished(records)
    for trial, generation in sorted(traces.items()):
        if trial < trial_count and generation > formed.get(trial, 0):
            fence = GangFormed(trial=trial, generation=generation, hosts=())
            # A result belongs to the trial's last generation.
            records.insert(records.index(finished[trial]) if trial in finished else len(records), fence)
    return records


def _unfinished(records: Sequence[AnyRecord]) -> list[TrialId]:
    return sorted(set(_formed(records)) - set(_finished(records)))


def _formed(records: Iterable[AnyRecord]) -> dict[TrialId, Generation]:
    """The newest generation of each trial that has started."""
    return {record.trial: record.generation for record in records if isinstance(record, GangFormed)}


def _finished(records: Iterable[AnyRecord]) -> dict[TrialId, AnyRecord]:
    """The results of trials that have one and did not start again after it."""
    results: dict[TrialId, AnyRecord] = {}
    for record in records:
        if isinstance(record, GangFormed):
            results.pop(record.trial, None)
        elif isinstance(record, TrialConcluded) and record.status.observed:
            results[record.trial] = record
    return results
