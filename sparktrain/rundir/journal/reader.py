"""Reads the journal of a run: the records of all its drivers, as one linear history.

The newest term with a batch decides which batches count: its own, and those of each earlier term that its driver had
read when it took over. All other batches are late writes of a deposed driver.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from sparktrain.base.garbage import uncollected
from sparktrain.errors import JournalCorruptError
from sparktrain.rundir.journal.journal_file import BATCH, SNAPSHOT, Content, Fault, Followed, decode
from sparktrain.rundir.layout import JournalLayout, within
from sparktrain.state.records import (
    AnyRecord,
    CheckpointAcknowledged,
    CheckpointCorrupt,
    CheckpointsDropped,
    Exploited,
)
from sparktrain.store.base import Store

_ATTEMPTS = 10
"""How often a reader lists a journal again that has changed during the read: batches are some time apart."""


class JournalContents(Struct, frozen=True):
    """The records that a read returned."""

    records: tuple[AnyRecord, ...]
    term: int
    """The term of the owner; 0 when there was none yet."""
    notes: tuple[str, ...] = ()
    """Notes for people, one line each: such as that the end of the newest batch is missing."""
    afresh: bool = True
    """Whether these are all records, so that those of earlier calls no longer count."""
    removal: int = 0
    """The number of the newest mark of a process that deletes the run; 0 when there is none."""


def read(store: Store, layout: JournalLayout) -> JournalContents:
    """Read the whole journal. Any process may call it at any time, also while a driver writes. Blocks; writes nothing.

    Raises JournalCorruptError, RunDirectoryError for the journal of a later sparktrain, and OSError from the store.
    """
    return Tail(store, layout).read_new()


class Tail:
    """Follows a journal as it grows. Used by one thread at a time."""

    def __init__(self, store: Store, layout: JournalLayout) -> None:
        self._store = store
        self._layout = layout
        self._listed: Listing | None = None
        self.position: tuple[Followed, ...] = ()
        """What has been read, as in the header of a driver that continues from there."""

    @property
    def highest(self) -> int:
        """The highest term so far; 0 when there is none."""
        return self._listed.highest if self._listed is not None else 0

    @uncollected()
    def read_new(self) -> JournalContents:
        """Read the records since the last call, or all (see `JournalContents.afresh`). Blocks; raises as `read` does.

        Lists one folder, and reads the new files.
        """
        listing = survey(self._store, self._layout)
        if listing == self._listed:
            return JournalContents((), listing.term, afresh=False, removal=listing.removal)
        listing, replayed = read_stable(self._store, self._layout, self.position, listing)
        if replayed.corruption is not None:
            raise _corrupt_error(self._store, self._layout, replayed)
        self._listed = listing
        self.position = replayed.chain
        return JournalContents(replayed.records, listing.term, replayed.notes, replayed.afresh, listing.removal)


class Listing(Struct, frozen=True):
    """The files of a journal, by their names."""

    terms: tuple[int, ...]
    batches: frozenset[tuple[int, int]]
    """Term and number of each."""
    snapshots: frozenset[tuple[int, int]]
    removals: tuple[int, ...] = ()
    """The numbers of the marks of processes that delete the run."""
    foreign: tuple[str, ...] = ()
    """Paths that sparktrain does not write."""

    @property
    def term(self) -> int:
        """The highest term that a driver has claimed; 0 when there is none."""
        return max(self.terms, default=0)

    @property
    def removal(self) -> int:
        """The number of the newest mark of a process that deletes the run; 0 when there is none."""
        return max(self.removals, default=0)

    @property
    def highest(self) -> int:
        """The highest term of any file: the next driver takes a higher one."""
        return max(self.term, *(term for term, _ in self.batches | self.snapshots), 0)


class Corruption(Struct, frozen=True):
    """The first counting file that cannot be read."""

    path: str
    """The store's name of the file, for people."""
    record: int
    """The first corrupt record, counted from 1; 0 for the whole file."""
    problem: str
    lost: int | None
    """How many records of this file cannot be read; None when unknown."""

    def __str__(self) -> str:
        lost = "its records" if self.lost is None else f"{self.lost} of its records"
        return f"{f'record {self.record} of ' if self.record else ''}{self.path} {self.problem}; {lost} are lost"


class Replayed(Struct, frozen=True):
    """The records in the files of one listing, up to the first corruption."""

    records: tuple[AnyRecord, ...]
    chain: tuple[Followed, ...]
    """All batches that count, as a header names them."""
    afresh: bool = True
    """Whether these are all records."""
    from_first: bool = False
    """Whether they start with the first batch because there is no snapshot."""
    notes: tuple[str, ...] = ()
    corruption: Corruption | None = None
    unread: tuple[tuple[int, int], ...] = ()
    """Term and number of the corrupt batch, and of each counting one after it."""


def survey(store: Store, layout: JournalLayout) -> Listing:
    """List the files of the journal. Blocks; raises OSError."""
    terms = []
    batches = set()
    snapshots = set()
    removals = []
    foreign = []
    for path in store.list(layout.path):
        numbers = [int(part) for part in path.rpartition("/")[2].split("-")[1:] if part.isdecimal()]
        if len(numbers) == 1 and path == layout.term(numbers[0]):
            terms.append(numbers[0])
        elif len(numbers) == 1 and path == layout.removal(numbers[0]):
            removals.append(numbers[0])
        elif len(numbers) == 2 and path == layout.batch(*numbers):
            batches.add((numbers[0], numbers[1]))
        elif len(numbers) == 2 and path == layout.snapshot(*numbers):
            snapshots.add((numbers[0], numbers[1]))
        else:
            foreign.append(path)
    return Listing(
        tuple(sorted(terms)), frozenset(batches), frozenset(snapshots), tuple(sorted(removals)), tuple(foreign)
    )


def read_stable(
    store: Store,
    layout: JournalLayout,
    position: tuple[Followed, ...],
    listing: Listing,
    attempts: int = _ATTEMPTS,
) -> tuple[Listing, Replayed]:
    """Read the journal beyond `position` from a stable listing; returns both. Blocks; raises as `read` does.

    The owner adds and deletes files meanwhile, and no store lists them as of one moment. So a file counts as missing
    only when the next listing is the same, and the journal counts as without a snapshot, and so complete from its first
    batch, only when the next listing has none either.
    """
    try:
        replayed = Replay(store, layout, listing).run(position)
    except FileNotFoundError:
        if attempts == 0:
            raise
        return read_stable(store, layout, position, survey(store, layout), attempts - 1)
    if attempts == 0 or (replayed.corruption is None and not replayed.from_first):
        return listing, replayed
    # No store lists a folder as of one moment: with a slow listing beside a compaction, files were missing that the
    # next listing had.
    again = survey(store, layout)
    if again == listing or (replayed.corruption is None and again.snapshots == listing.snapshots):
        return listing, replayed
    return read_stable(store, layout, position, again, attempts - 1)


class Replay:
    """Reads the files of one listing once."""

    def __init__(self, store: Store, layout: JournalLayout, listing: Listing) -> None:
        self._store = store
        self._layout = layout
        self._listing = listing
        self._numbers: dict[int, list[int]] = defaultdict(list)
        """Ascending numbers of the batches of each term."""
        for term, number in sorted(listing.batches):
            self._numbers[term].append(number)
        self._contents: dict[str, Content] = {}
        self._notes: list[str] = []

    def run(self, position: tuple[Followed, ...]) -> Replayed:
        """Read what counts after `position`, or everything when that is no longer available.

        Raises FileNotFoundError when a file vanishes meanwhile, and OSError and RunDirectoryError as `read` does.
        """
        chain = self._chain()
        if position and counts(chain, position[-1]) and self._are_listed(_steps(chain, position[-1])):
            return self._add(Replayed((), chain, afresh=False), position[-1])
        snapshot = self._newest_snapshot(chain)
        if snapshot is None:
            return self._add(Replayed((), chain, from_first=True), Followed(0, 0))
        last, content = snapshot
        return self._add(Replayed(content.records, chain), last)

    def _add(self, start: Replayed, last: Followed) -> Replayed:
        """Add the batches after `last` to the records that were read up to it."""
        records = list(start.records)
        corruption = None
        steps = list(_steps(start.chain, last))
        index = 0
        while index < len(steps) and corruption is None:
            term, number, limit = steps[index]
            content = self.batch(term, number)
            if content.fault is not None and (limit is None or len(content.records) < limit):
                corruption = self._corruption(term, number, content)
            else:
                index += 1
            records += content.records[:limit]
        return replace(
            start,
            records=tuple(records),
            notes=tuple(self._notes),
            corruption=corruption,
            unread=tuple((term, number) for term, number, _ in steps[index:]),
        )

    def _are_listed(self, steps: Iterable[tuple[int, int, int | None]]) -> bool:
        return all((term, number) in self._listing.batches for term, number, _ in steps)

    def _corruption(self, term: int, number: int, content: Content) -> Corruption:
        fault = content.fault or Fault(0, "is missing")
        lost = content.header.records - len(content.records) if content.header else None
        return Corruption(self._store.where(self._layout.batch(term, number)), fault.record, fault.problem, lost)

    # ---- which files count

    def _chain(self) -> tuple[Followed, ...]:
        """The batches that count, up to the newest."""
        terms = sorted({term for term, _ in self._listing.batches | self._listing.snapshots}, reverse=True)
        return self._chain_to(terms)

    def _chain_to(self, terms: list[int]) -> tuple[Followed, ...]:
        """The batches that count, up to the newest batch of these terms, which are given newest first."""
        if not terms:
            return ()
        term, *older = terms
        newest = max((number for snapshot_term, number in self._listing.snapshots if snapshot_term == term), default=0)
        records = None
        if self._numbers[term] and self._numbers[term][-1] > newest:
            newest = self._numbers[term][-1]
            content = self.batch(term, newest)
            if content.fault is not None and content.fault.cut:
                self._note_cut(term, newest, content)
                if content.header is None:
                    # Not even its header arrived, so its driver cannot have acted on it.
                    newest -= 1
                else:
                    records = len(content.records)
        if newest == 0:  # the first batch was never acknowledged, and what it follows is unknown
            return self._chain_to(older)
        follows = self._follows(term)
        return (*(self._chain_to(older) if follows is None else follows), Followed(term, newest, records))

    def _follows(self, term: int) -> tuple[Followed, ...] | None:
        """The batches that the driver of `term` had read, from the header of any of its files; None without one."""
        for number in reversed(self._numbers[term]):
            if header := self.batch(term, number).header:
                return header.follows
        for snapshot_term, number in sorted(self._listing.snapshots, reverse=True):
            if snapshot_term == term and (header := self.snapshot(term, number).header):
                return header.follows
        return None

    def _newest_snapshot(self, chain: tuple[Followed, ...]) -> tuple[Followed, Content] | None:
        """The newest readable snapshot that holds only what counts."""
        for term, number in sorted(self._listing.snapshots, reverse=True):
            if not counts(chain, Followed(term, number)):
                continue
            content = self.snapshot(term, number)
            if content.fault is None:
                return Followed(term, number), content
            where = self._store.where(self._layout.snapshot(term, number))
            self._notes.append(f"snapshot {where} is corrupt, and was left out: {content.fault}")
        return None

    def _note_cut(self, term: int, number: int, content: Content) -> None:
        header = content.header
        count = len(content.records)
        dropped = f"the last {header.records - count} of its {header.records} records" if header else "all its records"
        where = self._store.where(self._layout.batch(term, number))
        self._notes.append(
            f"journal file {where} was cut, as when its driver dies while it writes: {dropped} are dropped; "
            "nothing that was written later shows that they counted"
        )

    # ---- files

    def batch(self, term: int, number: int) -> Content:
        """The readable part of a batch."""
        if (term, number) not in self._listing.batches:
            return Content(None, fault=Fault(0, "is missing"))
        return self._read(self._layout.batch(term, number), BATCH, term, number)

    def snapshot(self, term: int, number: int) -> Content:
        """The readable part of a snapshot."""
        return self._read(self._layout.snapshot(term, number), SNAPSHOT, term, number)

    def _read(self, path: str, kind: str, term: int, number: int) -> Content:
        if path not in self._contents:
            content = self._store.read(path)
            decoded = decode(content, self._store.where(path), kind, term, number)
            records = tuple(relocated(decoded.records, self._layout.run))
            self._contents[path] = replace(decoded, records=records)
        return self._contents[path]


def counts(chain: tuple[Followed, ...], last: Followed) -> bool:
    """Whether the chain contains the batches up to `last`."""
    return any(
        last == link or (last.term == link.term and last.number < link.number and last.records is None)
        for link in chain
    )


def _steps(chain: tuple[Followed, ...], after: Followed) -> Iterator[tuple[int, int, int | None]]:
    """Term, number, and number of counting records (None: all) of each batch in the chain after `after`."""
    for link in chain:
        if link.term >= after.term:
            first = after.number + 1 if link.term == after.term else 1
            for number in range(first, link.number + 1):
                yield link.term, number, link.records if number == link.number else None


def _corrupt_error(store: Store, layout: JournalLayout, replayed: Replayed) -> JournalCorruptError:
    run = store.where(layout.run)
    later = f", and {len(replayed.unread) - 1} files after it cannot be followed" if replayed.unread[1:] else ""
    return JournalCorruptError(
        f"journal of {run} is corrupt: {replayed.corruption}{later}; `sparktrain fsck {run}` shows what can be kept"
    )


def relocated(records: Iterable[AnyRecord], run: str) -> Iterator[AnyRecord]:
    """The records, with each checkpoint in the folder `run` of the store.

    A record names a checkpoint by its path in the store, which starts with the name of the run directory. A directory
    that was renamed or copied has another name, and its checkpoints are in itself: the rest of the path counts.
    """
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
