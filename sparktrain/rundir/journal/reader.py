"""The journal of a run, read by anyone: what the drivers of the run have written down, in one line of history.

Which batches count is said by the newest epoch that has one: those of its own, and of each epoch before it those that
its driver had read when it took over. All other batches are late ones of a driver that had been deposed by then.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from sparktrain.errors import JournalCorruptError
from sparktrain.rundir.journal.file_format import BATCH, SNAPSHOT, Content, Fault, Followed, decode
from sparktrain.rundir.layout import JournalLayout
from sparktrain.state.records import AnyRecord
from sparktrain.store.base import Store

_ATTEMPTS = 10
"""How often a journal is listed anew that has changed while it was read: its batches are some time apart."""


class JournalContents(Struct, frozen=True):
    """What was read."""

    records: tuple[AnyRecord, ...]
    epoch: int
    """Of the driver in charge; 0 when there was none yet."""
    notes: tuple[str, ...] = ()
    """What somebody should be told, one line each: such as that the end of the newest batch is missing."""
    afresh: bool = True
    """These are all records there are: forget those of earlier calls."""


def read(store: Store, layout: JournalLayout) -> JournalContents:
    """The whole journal. Called by anyone at any time, while a driver writes too. Blocks; writes nothing.

    Raises JournalCorruptError, RunDirectoryError for the journal of a later sparktrain, and OSError from the store.
    """
    return Tail(store, layout).more()


class Tail:
    """A journal that is read again and again. Used by one thread at a time."""

    def __init__(self, store: Store, layout: JournalLayout) -> None:
        self._store = store
        self._layout = layout
        self._listed: Listing | None = None
        self.position: tuple[Followed, ...] = ()
        """What has been read, as the header of a driver that goes on from there says it."""

    @property
    def highest(self) -> int:
        """The highest epoch that was seen; 0 when there was none."""
        return self._listed.highest if self._listed is not None else 0

    def more(self) -> JournalContents:
        """What has come since the last call, or everything (see `JournalContents.afresh`). Blocks; raises as `read`
        does.

        Lists one folder, and reads the files that are new.
        """
        listing = survey(self._store, self._layout)
        if listing == self._listed:
            return JournalContents((), listing.epoch, afresh=False)
        listing, found = settled(self._store, self._layout, self.position, listing)
        if found.damage is not None:
            raise _damaged(self._store, self._layout, found)
        self._listed, self.position = listing, found.chain
        return JournalContents(found.records, listing.epoch, found.notes, found.afresh)


class Listing(Struct, frozen=True):
    """The files of a journal, by their names."""

    epochs: tuple[int, ...]
    batches: frozenset[tuple[int, int]]
    """Epoch and number of each."""
    snapshots: frozenset[tuple[int, int]]
    foreign: tuple[str, ...] = ()
    """Paths that no sparktrain writes."""

    @property
    def epoch(self) -> int:
        """The highest that was claimed; 0 when none was."""
        return max(self.epochs, default=0)

    @property
    def highest(self) -> int:
        """The highest that any file has: the next driver's is above it."""
        return max(self.epoch, *(epoch for epoch, _ in self.batches | self.snapshots), 0)


class Damage(Struct, frozen=True):
    """The first file that counts and cannot be read."""

    path: str
    """As the store names it for people."""
    record: int
    """Counted from 1; 0 when it is the whole file."""
    problem: str
    lost: int | None
    """How many records of this file cannot be read; None when nobody knows."""

    def __str__(self) -> str:
        lost = "its records" if self.lost is None else f"{self.lost} of its records"
        return f"{f'record {self.record} of ' if self.record else ''}{self.path} {self.problem}; {lost} are lost"


class Replayed(Struct, frozen=True):
    """What the files of one listing hold, up to the damage."""

    records: tuple[AnyRecord, ...]
    chain: tuple[Followed, ...]
    """All that counts, as a header says it."""
    afresh: bool = True
    """They are all there are."""
    from_first: bool = False
    """They begin with the first batch, for want of a snapshot."""
    notes: tuple[str, ...] = ()
    damage: Damage | None = None
    unread: tuple[tuple[int, int], ...] = ()
    """Epoch and number of the damaged batch, and of each one that counts after it."""


def survey(store: Store, layout: JournalLayout) -> Listing:
    """What is in the folder of the journal. Blocks; raises OSError."""
    epochs, batches, snapshots, foreign = [], set(), set(), []
    for path in store.list(layout.path):
        numbers = [int(each) for each in path.rpartition("/")[2].split("-")[1:] if each.isdecimal()]
        if len(numbers) == 1 and path == layout.epoch(numbers[0]):
            epochs.append(numbers[0])
        elif len(numbers) == 2 and path == layout.batch(*numbers):
            batches.add((numbers[0], numbers[1]))
        elif len(numbers) == 2 and path == layout.snapshot(*numbers):
            snapshots.add((numbers[0], numbers[1]))
        else:
            foreign.append(path)
    return Listing(tuple(sorted(epochs)), frozenset(batches), frozenset(snapshots), tuple(foreign))


def settled(
    store: Store,
    layout: JournalLayout,
    position: tuple[Followed, ...],
    listing: Listing,
    attempts: int = _ATTEMPTS,
) -> tuple[Listing, Replayed]:
    """What is in the journal beyond `position`, and the listing that it was read from. Blocks; raises as `read` does.

    The driver in charge adds and deletes files meanwhile, and no store lists them as of one moment. So what is missing
    counts as missing only when the next listing is the same; and that there is no snapshot, and so nothing before the
    first batch, only when the next listing has none either.
    """
    try:
        found = Replay(store, layout, listing).run(position)
    except FileNotFoundError:
        if attempts == 0:
            raise
        return settled(store, layout, position, survey(store, layout), attempts - 1)
    if attempts == 0 or (found.damage is None and not found.from_first):
        return listing, found
    again = survey(store, layout)
    if again == listing or (found.damage is None and again.snapshots == listing.snapshots):
        return listing, found
    return settled(store, layout, position, again, attempts - 1)


class Replay:
    """One reading of the files of one listing."""

    def __init__(self, store: Store, layout: JournalLayout, listing: Listing) -> None:
        self._store = store
        self._layout = layout
        self._listing = listing
        self._numbers: dict[int, list[int]] = defaultdict(list)
        """Of the batches of each epoch, ascending."""
        for epoch, number in sorted(listing.batches):
            self._numbers[epoch].append(number)
        self._contents: dict[str, Content] = {}
        self._notes: list[str] = []

    def run(self, position: tuple[Followed, ...]) -> Replayed:
        """Read what counts and comes after `position`, or everything when that is not to be had.

        Raises FileNotFoundError when a file is deleted meanwhile, and OSError and RunDirectoryError as `read` does.
        """
        chain = self._chain()
        if position and counts(chain, position[-1]) and self._are_listed(_steps(chain, position[-1])):
            return self._add(Replayed((), chain, afresh=False), position[-1])
        snapshot = self._newest_snapshot(chain)
        if snapshot is None:
            return self._add(Replayed((), chain, from_first=True), Followed(0, 0))
        last, content = snapshot
        return self._add(Replayed(content.records, chain), last)

    def _add(self, begun: Replayed, last: Followed) -> Replayed:
        """What was read already, to the batch `last`, and the batches that come after it."""
        records, damage, steps, done = list(begun.records), None, list(_steps(begun.chain, last)), 0
        while done < len(steps) and damage is None:
            epoch, number, limit = steps[done]
            content = self.batch(epoch, number)
            if content.fault is not None and (limit is None or len(content.records) < limit):
                damage = self._damage(epoch, number, content)
            else:
                done += 1
            records += content.records[:limit]
        return replace(
            begun,
            records=tuple(records),
            notes=tuple(self._notes),
            damage=damage,
            unread=tuple((epoch, number) for epoch, number, _ in steps[done:]),
        )

    def _are_listed(self, steps: Iterable[tuple[int, int, int | None]]) -> bool:
        return all((epoch, number) in self._listing.batches for epoch, number, _ in steps)

    def _damage(self, epoch: int, number: int, content: Content) -> Damage:
        fault = content.fault or Fault(0, "is missing")
        lost = content.header.records - len(content.records) if content.header else None
        return Damage(self._store.where(self._layout.batch(epoch, number)), fault.record, fault.problem, lost)

    # ---- which files count

    def _chain(self) -> tuple[Followed, ...]:
        """What counts, to the newest batch."""
        epochs = sorted({epoch for epoch, _ in self._listing.batches | self._listing.snapshots}, reverse=True)
        return self._chain_to(epochs)

    def _chain_to(self, epochs: list[int]) -> tuple[Followed, ...]:
        """What counts, to the newest batch of these epochs, the newest first."""
        if not epochs:
            return ()
        epoch, *older = epochs
        newest = max((number for found, number in self._listing.snapshots if found == epoch), default=0)
        records = None
        if self._numbers[epoch] and self._numbers[epoch][-1] > newest:
            newest = self._numbers[epoch][-1]
            content = self.batch(epoch, newest)
            if content.fault is not None and content.fault.cut:
                self._note_cut(epoch, newest, content)
                if content.header is None:
                    newest -= 1
                else:
                    records = len(content.records)
        if newest == 0:  # nobody has been told that the first batch was written, and what it follows is not known
            return self._chain_to(older)
        follows = self._follows(epoch)
        return (*(self._chain_to(older) if follows is None else follows), Followed(epoch, newest, records))

    def _follows(self, epoch: int) -> tuple[Followed, ...] | None:
        """What the driver of `epoch` has read before its first batch: any of its files says it. None when none does."""
        for number in reversed(self._numbers[epoch]):
            if header := self.batch(epoch, number).header:
                return header.follows
        for found, number in sorted(self._listing.snapshots, reverse=True):
            if found == epoch and (header := self.snapshot(epoch, number).header):
                return header.follows
        return None

    def _newest_snapshot(self, chain: tuple[Followed, ...]) -> tuple[Followed, Content] | None:
        """The newest that can be read, of those that hold nothing but what counts."""
        for epoch, number in sorted(self._listing.snapshots, reverse=True):
            if not counts(chain, Followed(epoch, number)):
                continue
            content = self.snapshot(epoch, number)
            if content.fault is None:
                return Followed(epoch, number), content
            where = self._store.where(self._layout.snapshot(epoch, number))
            self._notes.append(f"snapshot {where} is damaged, and was left out: {content.fault}")
        return None

    def _note_cut(self, epoch: int, number: int, content: Content) -> None:
        header, kept = content.header, len(content.records)
        dropped = f"the last {header.records - kept} of its {header.records} records" if header else "all that it held"
        where = self._store.where(self._layout.batch(epoch, number))
        self._notes.append(
            f"journal file {where} was cut, as one is whose driver died while it wrote it: {dropped} are dropped; "
            "nothing that was written later says that they counted"
        )

    # ---- files

    def batch(self, epoch: int, number: int) -> Content:
        """What can be read of a batch."""
        if (epoch, number) not in self._listing.batches:
            return Content(None, fault=Fault(0, "is missing"))
        return self._read(self._layout.batch(epoch, number), BATCH, epoch, number)

    def snapshot(self, epoch: int, number: int) -> Content:
        """What can be read of a snapshot."""
        return self._read(self._layout.snapshot(epoch, number), SNAPSHOT, epoch, number)

    def _read(self, path: str, kind: str, epoch: int, number: int) -> Content:
        if path not in self._contents:
            content = self._store.read(path)
            self._contents[path] = decode(content, self._store.where(path), kind, epoch, number)
        return self._contents[path]


def counts(chain: tuple[Followed, ...], last: Followed) -> bool:
    """Whether the batches that end with `last` are among those of the chain."""
    return any(
        last == each or (last.epoch == each.epoch and last.number < each.number and last.records is None)
        for each in chain
    )


def _steps(chain: tuple[Followed, ...], after: Followed) -> Iterator[tuple[int, int, int | None]]:
    """Epoch, number, and how many records count (None: all) of each batch of the chain that comes after that one."""
    for each in chain:
        if each.epoch >= after.epoch:
            first = after.number + 1 if each.epoch == after.epoch else 1
            for number in range(first, each.number + 1):
                yield each.epoch, number, each.records if number == each.number else None


def _damaged(store: Store, layout: JournalLayout, found: Replayed) -> JournalCorruptError:
    run = store.where(layout.path.rpartition("/")[0])
    later = f", and {len(found.unread) - 1} files after it cannot be followed" if found.unread[1:] else ""
    return JournalCorruptError(
        f"journal of {run} is damaged: {found.damage}{later}; `sparktrain fsck {run}` says what can be kept"
    )
