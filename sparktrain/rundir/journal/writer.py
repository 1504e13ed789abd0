"""Writes the journal of a run, as its owner.

The driver that puts the file of the next term is the owner from then on, and reads the journal only then. In come
records, which become one batch: a file under the next number, without a gap. A batch counts once its file exists and
no later term existed after it, so `append` puts the file and then looks for a later term. It returns when the records
are durable, and raises DeposedError when another driver is the owner; an OSError leaves it open, and the next call
finds out. What must hold: the next driver reads everything on which a driver has acted. Hence no caller acts on
records before `append` has returned.

There is no lock, and no clock decides: a driver that wakes up after an hour can put one more batch, which no term
follows, and learns from the check after it that it is deposed. The only deadline is that of the store's calls.

The protocol is that of Delta Lake's log: put-if-absent, under numbers without a gap.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from sparktrain.base.decoding import from_json
from sparktrain.base.spans import span
from sparktrain.errors import BugError, DeposedError, RunDirectoryError
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.journal_file import (
    BATCH,
    SNAPSHOT,
    VERSION,
    Followed,
    Header,
    decode,
    encode,
)
from sparktrain.rundir.journal.reader import JournalContents, Tail, counts, survey
from sparktrain.rundir.journal.run_claim import RunClaim, new_claim, read_claim
from sparktrain.rundir.layout import JournalLayout
from sparktrain.rundir.run_place import RunPlace
from sparktrain.state.records import AnyRecord
from sparktrain.store.base import Store

_MOST_RIVALS = 100


class RemovalMark(Struct, frozen=True):
    """The file of a process that deletes the run: see `removal`."""

    version: int
    who: DriverIdentity


class Journal:
    """The journal of an owner; made by `claim`. Each method blocks on the store; used by one thread at a time.

    A call that raised OSError may be repeated, except for RunDirectoryError, which is a subclass. Once a method has
    raised DeposedError, every call does.
    """

    def __init__(self, store: Store, layout: JournalLayout, claim: RunClaim, follows: tuple[Followed, ...]) -> None:
        self.term = claim.term
        self.run = claim.run
        """Id of the run, the same under each driver: see `run_claim`."""
        self._store = store
        self._layout = layout
        self._follows = follows
        self._claim = claim
        self._number = 0
        """Number of the newest batch that counts."""
        self._unsettled: bytes | None = None
        """The batch of an `append` that has failed: it may have been written all the same."""
        self._deposed: DeposedError | None = None

    @classmethod
    def claim(cls, store: Store, layout: JournalLayout, identity: DriverIdentity) -> tuple["Journal", JournalContents]:
        """Take over the run: no other driver's records count from here on. Returns all records that do.

        Blocks. Raises JournalCorruptError or RunDirectoryError, and deposes no driver, when the journal cannot be read;
        RunDirectoryError while a process deletes the run; and OSError from the store: the next call takes a later term.
        """
        tail = Tail(store, layout)
        before = tail.read_new()
        refuse_removed(store, layout, before.removal)
        # Before the term is taken: a journal of a later version is refused without deposing its driver.
        former = read_claim(store, layout, before.term)
        claim = take(store, layout, identity, tail.highest, former)
        # Only now: the previous owner may have written more until this moment, and so may a process that deletes.
        after = tail.read_new()
        refuse_removed(store, layout, after.removal)
        records = after.records if after.afresh else before.records + after.records
        notes = tuple(dict.fromkeys((*before.notes, *after.notes, *_copy_note(former, claim))))
        journal = cls(store, layout, claim, tail.position)
        return journal, JournalContents(records, claim.term, notes)

    def append(self, records: Sequence[AnyRecord]) -> None:
        """Write the records as one batch. When it returns, they are durable, and every later driver reads them.

        Until then the caller must not act on them. After an OSError the next call must pass the same records: it finds
        out whether they were written. Raises DeposedError when another driver has taken over.
        """
        if records:
            with span("journal"):
                self._put(records)

    def settle(self) -> None:
        """Write an empty batch, so that exactly what was read at the take-over counts. Raises as `append`.

        After other batches it proves that these were complete: when the newest of them is cut or missing, a reader does
        not mistake it for one that was never acknowledged.
        """
        self._put(())

    def compact(self, records: Sequence[AnyRecord]) -> None:
        """Write a snapshot, and delete the files that the previous one has made superfluous. See `compaction`."""
        self.compaction().write(records)

    def compaction(self) -> "Compaction":
        """Prepare a snapshot of all that was appended so far, to be written during further appends; never blocks.

        Call it after an `append` that returned, and not before the previous compaction has ended.
        """
        if self._number == 0 or self._unsettled is not None:
            raise BugError("a journal is compacted only after an append that has returned")
        return Compaction(self._store, self._layout, self._header(SNAPSHOT, self._number))

    def check(self) -> None:
        """Raise DeposedError when another driver has taken over, or the run was deleted.

        Two calls of the store, which may raise OSError.
        """
        self._check_rivals()
        if self._deposed is None and not self._store.exists(self._layout.term(self.term)):
            self._deposed = DeposedError(
                f"{self._store.where(self._layout.path)} was deleted, or moved, while this driver ran: it ends, and "
                "what it has written since is incomplete; start a new run under another name"
            )
        if self._deposed is not None:
            raise self._deposed

    # ---- inside

    def _check_rivals(self) -> None:
        if self._deposed is None and self._store.exists(self._layout.term(self.term + 1)):
            self._deposed = self._deposed_error()
        if self._deposed is not None:
            raise self._deposed

    def _put(self, records: Sequence[AnyRecord]) -> None:
        number = self._number + 1
        content = encode(self._header(BATCH, number), records)
        if self._deposed is not None:
            raise self._deposed
        if self._unsettled not in (None, content):
            raise BugError(f"batch {number} of term {self.term} was tried with other records before: retry those")
        self._unsettled = content
        created = self._store.put_if_absent(self._layout.batch(self.term, number), content)
        # After the put, never before it: a driver that takes over between the two would not have read this batch.
        self._check_rivals()
        if not created:
            self._recognise(self._layout.batch(self.term, number), content)
        self._number = number
        self._unsettled = None

    def _header(self, kind: str, number: int) -> Header:
        return Header(VERSION, self._claim.who.sparktrain, kind, self.term, number, 0, 0, self._follows)

    def _recognise(self, path: str, content: bytes) -> None:
        """Verify that an existing file is from an earlier attempt: no other driver writes in this term."""
        data = self._store.read(path)
        if data == content:
            return
        where = self._store.where(path)
        if content.startswith(data):
            raise RunDirectoryError(
                f"journal file {where} has {len(data)} of the {len(content)} bytes that were written to it: the store "
                "does not create files as a whole; resume the run in a store that does"
            )
        raise BugError(
            f"journal file {where} was written by another driver in term {self.term}, which belongs to this one"
        )

    def _deposed_error(self) -> DeposedError:
        run = self._store.where(self._layout.run)
        try:
            driver = newest_driver(self._store, self._layout)
        except OSError:
            driver = None
        return DeposedError(
            f"another driver ({driver or 'unknown'}) has taken over {run}: this one (term {self.term}, "
            f"{self._claim.who}) ends; its records that were not confirmed as durable do not count"
        )


class Compaction:
    """Writes one snapshot, and deletes superfluous files. Used by one thread, which may differ from the journal's.

    It writes no file that the journal writes, and deletes none that a reader needs, whatever is appended meanwhile.
    """

    def __init__(self, store: Store, layout: JournalLayout, header: Header) -> None:
        """`header` is the header of the snapshot."""
        self._store = store
        self._layout = layout
        self._header = header

    def write(self, records: Sequence[AnyRecord]) -> None:
        """Write the snapshot, and delete what the previous one has made superfluous. Blocks on the store.

        `records` must be equivalent to the journal as of the call of `compaction`, but shorter. Raises OSError, and
        DeposedError when another driver has taken over; the journal stays intact wherever this ends.
        """
        term = self._header.term
        number = self._header.number
        path = self._layout.snapshot(term, number)
        created = self._store.put_if_absent(path, encode(self._header, records))
        if self._store.exists(self._layout.term(term + 1)):
            run = self._store.where(self._layout.run)
            raise DeposedError(f"another driver has taken over {run}: nothing is deleted for this one (term {term})")
        # A snapshot that was there may be cut, and then the files before it are all that a reader has.
        if created or self._is_whole(path, term, number):
            self._delete_superfluous()

    def _is_whole(self, path: str, term: int, number: int) -> bool:
        where = self._store.where(path)
        return decode(self._store.read(path), where, SNAPSHOT, term, number).fault is None

    def _delete_superfluous(self) -> None:
        """Keep the newest snapshot, the newest readable one before it, and everything after that one."""
        listing = survey(self._store, self._layout)
        chain = (*self._header.follows, Followed(self._header.term, self._header.number - 1))
        older = sorted((snapshot for snapshot in listing.snapshots if counts(chain, Followed(*snapshot))), reverse=True)
        base = next((key for key in older if self._is_whole(self._layout.snapshot(*key), *key)), None)
        if base is None:
            return
        # Snapshots first: if this ends in the middle, no snapshot is left without the batches after it.
        snapshots = sorted(snapshot for snapshot in listing.snapshots if snapshot < base)
        self._store.delete_all([self._layout.snapshot(*snapshot) for snapshot in snapshots])
        batches = sorted(batch for batch in listing.batches if batch <= base)
        self._store.delete_all([self._layout.batch(*batch) for batch in batches])


def newest_driver(store: Store, layout: JournalLayout) -> DriverIdentity | None:
    """The owner, alive or not; None when there was none, or its file cannot be read. Blocks; raises OSError.

    None for a copy that no driver has resumed: the driver of the original does not own it.

    Raises RunDirectoryError for the journal of a later sparktrain.
    """
    claim = read_claim(store, layout, survey(store, layout).term)
    if claim is None or claim.at.is_elsewhere(RunPlace.of(store, layout.run)):
        return None
    return claim.who


def refuse_removed(store: Store, layout: JournalLayout, number: int) -> None:
    """Raise RunDirectoryError for a driver that wants the run while there is the mark `number` of a removal.

    0 stands for no mark. Blocks on the store; raises OSError.
    """
    if number:
        run = store.where(layout.run)
        raise RunDirectoryError(
            f"run directory {run} is being deleted by {remover(store, layout, number) or 'another process'}: wait for "
            f"its end, or finish what an interrupted one has left by `sparktrain rm {run}`; or choose another name"
        )


def remover(store: Store, layout: JournalLayout, number: int) -> DriverIdentity | None:
    """The process that has put a mark of a removal; None when it cannot be read, or is gone. Blocks; raises OSError."""
    try:
        return from_json(store.read(layout.removal(number)), RemovalMark).who
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def take(
    store: Store, layout: JournalLayout, identity: DriverIdentity, highest: int, former: RunClaim | None
) -> RunClaim:
    """Put the file of the next term above `highest`, the highest known one; `former` is the newest claim before.

    Blocks; raises OSError: the file may have been put, and then belongs to no driver.
    """
    claim = new_claim(store, layout, identity, highest + 1, former)
    for term in range(highest + 1, highest + _MOST_RIVALS):
        claim = replace(claim, term=term)
        if store.put_if_absent(layout.term(term), msgspec.json.encode(claim)):
            return claim
    raise DeposedError(f"{store.where(layout.path)} was taken over by {_MOST_RIVALS} other drivers: try again")


def driver_of(store: Store, layout: JournalLayout, term: int) -> DriverIdentity | None:
    """The driver that has claimed a term; None for term 0, or where its file cannot be read. Blocks; raises OSError.

    Raises RunDirectoryError for the journal of a later sparktrain.
    """
    claim = read_claim(store, layout, term)
    return None if claim is None else claim.who


def _copy_note(former: RunClaim | None, claim: RunClaim) -> tuple[str, ...]:
    if former is None or former.run in ("", claim.run):
        return ()
    place = claim.at.url
    origin = "another folder than before" if former.at.url == place else f"a copy of {former.at.url}, or moved"
    return (f"run directory {place} is {origin}: it is a run of its own now, with the id {claim.run}",)
