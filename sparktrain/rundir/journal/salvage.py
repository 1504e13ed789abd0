"""A damaged journal: what is wrong with it, what is lost, and how the run can go on with the rest.

What was written before the damage is kept. Of what came after it, the facts about trials that are known by then are
kept too: each of them holds by itself, whatever the records between them were, and a trial that has its result is not
run again. Trials that were added after the damage are not kept: nobody can say any more which numbers they had.
"""

import re
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from sparktrain.ids import Generation, TrialId
from sparktrain.rundir.journal.file_format import Followed, salvage
from sparktrain.rundir.journal.reader import Listing, Replay, Replayed, counts, settled, survey
from sparktrain.rundir.journal.writer import DriverIdentity, Journal, take
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
"""A file that a gang has left."""

_Fact = GangFormed | CheckpointAcknowledged | CheckpointCorrupt | CheckpointsDropped | TrialConcluded
"""Records that hold by themselves."""


class SalvageReport(Struct, frozen=True):
    """What was found."""

    problems: tuple[str, ...]
    """Why the journal cannot be read, one line for each file; empty when it can."""
    notes: tuple[str, ...]
    """What is unusual and does no harm, one line each."""
    kept: int
    """How many records can be kept."""
    again: tuple[TrialId, ...]
    """Trials that were begun and have no result in what can be kept: these are run again."""

    @property
    def whole(self) -> bool:
        """Nothing is to be repaired."""
        return not self.problems


def fsck(store: Store, layout: RunLayout) -> SalvageReport:
    """Look at each file of the run's journal that matters. Called by anyone; blocks, and writes nothing.

    Raises RunDirectoryError for the journal of a later sparktrain, and OSError from the store.
    """
    return examine(store, layout)[0]


def repair(store: Store, layout: RunLayout, who: DriverIdentity) -> SalvageReport:
    """Make a damaged journal one that can be read, with all that `fsck` says can be kept; its report. Blocks.

    It takes over the run as a driver does, which deposes one that is still alive, and writes what is kept as the first
    batch of an epoch that follows nothing. No file is changed or deleted; a whole journal is left as it is. Raises as
    `fsck` and `Journal.append` do; when it is called again after an OSError it does what is left to be done.
    """
    report, _ = examine(store, layout)
    if report.whole:
        return report
    epoch = take(store, layout.journal, who, survey(store, layout.journal).highest)
    report, kept = examine(store, layout)
    journal = Journal(store, layout.journal, epoch, (), who)
    journal.append(kept) if kept else journal.settle()
    return report


def examine(store: Store, layout: RunLayout) -> tuple[SalvageReport, tuple[AnyRecord, ...]]:
    """The report, and the records that can be kept: all of them where the journal is whole. As `fsck`."""
    listing, found = settled(store, layout.journal, (), survey(store, layout.journal))
    notes = [*found.notes, *_oddities(store, layout.journal, listing, found)]
    if found.damage is None:
        return SalvageReport((), tuple(notes), len(found.records), ()), found.records
    begun, later = _rescued(store, layout.journal, listing, found)
    known = _known(begun)
    traces = _traces(store, layout)
    kept = _fenced([*begun, *_facts(begun, later, known)], traces, known)
    lost = sorted({each.trial for each in later if isinstance(each, _Fact) and each.trial >= known})
    notes += [
        f"folder {store.where(layout.trial(trial))} is of a trial that cannot be kept: move it away before the run is "
        "resumed, or it gets into the way of the next trial of this number"
        for trial in sorted(traces)
        if trial >= known
    ]
    problems = _problems(store, layout.journal, listing, found)
    return SalvageReport(problems, tuple(notes), len(kept), (*_unfinished(kept), *lost)), tuple(kept)


def _problems(store: Store, layout: JournalLayout, listing: Listing, found: Replayed) -> tuple[str, ...]:
    replay = Replay(store, layout, listing)
    others = ((each, replay.batch(*each).fault) for each in found.unread[1:])
    return (
        str(found.damage),
        *(f"{store.where(layout.batch(*each))}: {fault}" for each, fault in others if fault is not None),
    )


def _oddities(store: Store, layout: JournalLayout, listing: Listing, found: Replayed) -> list[str]:
    """Files that do not count, and missing ones that are not needed."""
    late = sorted(each for each in listing.batches if not counts(found.chain, Followed(*each)))
    lacking = sorted(set(range(1, listing.highest + 1)) - set(listing.epochs))
    return [
        *(f"{store.where(path)} is no file of a journal, and is left alone" for path in listing.foreign),
        *(f"{store.where(layout.epoch(epoch))} is missing: nobody knows who that driver was" for epoch in lacking),
        *(f"{store.where(layout.batch(*each))} does not count: its driver had been deposed" for each in late),
    ]


# ---- what can be kept


def _rescued(
    store: Store, layout: JournalLayout, listing: Listing, found: Replayed
) -> tuple[tuple[AnyRecord, ...], list[AnyRecord]]:
    """The longest beginning that can be read, be it of a damaged snapshot, and every record after it that is right."""
    begun, rest = found.records, [layout.batch(*each) for each in found.unread]
    replay = Replay(store, layout, listing)
    for snapshot in sorted(listing.snapshots):
        records = replay.snapshot(*snapshot).records
        if counts(found.chain, Followed(*snapshot)) and _known(records) > _known(begun):
            batches = [layout.batch(*each) for each in found.unread if each > snapshot]
            begun, rest = records, [layout.snapshot(*snapshot), *batches]
    return begun, [record for path in rest for record in _right_lines(store, path)]


def _right_lines(store: Store, path: str) -> tuple[AnyRecord, ...]:
    try:
        return salvage(store.read(path))
    except FileNotFoundError:
        return ()


def _known(records: Iterable[AnyRecord]) -> int:
    """How many trials were added."""
    return sum(len(record.cases) for record in records if isinstance(record, TrialsAdded))


def _facts(begun: Iterable[AnyRecord], later: Iterable[AnyRecord], known: int) -> list[AnyRecord]:
    """The records of `later` that hold by themselves, less those that are in `begun` already."""
    seen = {msgspec.json.encode(record) for record in begun}
    facts: list[AnyRecord] = []
    for record in later:
        if isinstance(record, _Fact) and record.trial < known and (said := msgspec.json.encode(record)) not in seen:
            seen.add(said)
            facts.append(record)
    return facts


def _traces(store: Store, layout: RunLayout) -> dict[TrialId, Generation]:
    """The highest generation of each trial that has left a file."""
    traces: dict[TrialId, Generation] = {}
    for path in store.list(f"{layout.path}/trials"):
        if found := _TRACE.fullmatch(path):
            trial, generation = TrialId(int(found["trial"])), Generation(int(found["generation"]))
            traces[trial] = max(generation, traces.get(trial, generation))
    return traces


def _fenced(kept: list[AnyRecord], traces: dict[TrialId, Generation], known: int) -> list[AnyRecord]:
    """Add that trials were formed more often than is written: no gang may use the files of a generation again."""
    formed, finished = _formed(kept), _finished(kept)
    for trial, generation in sorted(traces.items()):
        if trial < known and generation > formed.get(trial, 0):
            fence = GangFormed(trial=trial, generation=generation, hosts=())
            # What has a result has it from its last generation.
            kept.insert(kept.index(finished[trial]) if trial in finished else len(kept), fence)
    return kept


def _unfinished(kept: Sequence[AnyRecord]) -> list[TrialId]:
    return sorted(set(_formed(kept)) - set(_finished(kept)))


def _formed(records: Iterable[AnyRecord]) -> dict[TrialId, Generation]:
    """The newest generation of each trial that was begun."""
    return {record.trial: record.generation for record in records if isinstance(record, GangFormed)}


def _finished(records: Iterable[AnyRecord]) -> dict[TrialId, AnyRecord]:
    """The results of those trials that have one, and were not begun again after it."""
    results: dict[TrialId, AnyRecord] = {}
    for record in records:
        if isinstance(record, GangFormed):
            results.pop(record.trial, None)
        elif isinstance(record, TrialConcluded) and record.status.observed:
            results[record.trial] = record
    return results
