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
from uuid import uuid4

import msgspec
from msgspec import Struct

from sparktrain.errors import BugError, DeposedError, RunDirectoryError
from sparktrain.rundir.journal.file_format import (
    BATCH,
    SNAPSHOT,
    VERSION,
    Followed,
    Header,
    check_version,
    decode,
    encode,
)
from sparktrain.rundir.journal.reader import JournalContents, Tail, counts, survey
from sparktrain.rundir.layout import JournalLayout
from sparktrain.state.records import AnyRecord
from sparktrain.store.base import Store

_MOST_RIVALS = 100


class DriverIdentity(Struct, frozen=True):
    """Identifies a driver, to processes that look for it and to people."""

    host: str
    pid: int
    started: float
    """Start in seconds since 1970, by its own clock."""
    sparktrain: str
    """The driver's version of sparktrain."""
    address: str = ""
    """HOST:PORT of its coordinator; empty when it does not listen."""
    fingerprint: str = ""
    """Fingerprint of the coordinator's certificate; empty when it does not listen."""
    purpose: str = ""
    """Why it has taken over the run, if not to run its trials."""
    application: str = ""
    """The YARN application in which it runs, as in `1795280325843_0001`; empty outside of YARN."""
    attempt: int = 0
    """YARN restarts an application when its driver is lost: the number of this attempt, from 1."""
    user: str = ""
    """The user who started it; empty where an older sparktrain did."""

    def replaces(self, other: "DriverIdentity") -> bool:
        """Whether YARN has given up the other driver, and started this one in its place."""
        return self.application == other.application != "" and self.attempt > other.attempt

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}{f' ({self.purpose})' if self.purpose else ''}"


class _Term(Struct, frozen=True):
    """The file with which a driver takes over."""

    version: int
    term: int
    nonce: str
    """Makes the bytes of each driver's file unique: a store may read a file back to find out who wrote it."""
    who: DriverIdentity


class _AnyTerm(Struct, frozen=True):
    """The part of that file that every later version has too."""

    version: int
    who: dict[str, object]


class RemovalMark(Struct, frozen=True):
    """The file of a process that deletes the run: see `removal`."""

    version: int
    who: DriverIdentity


class Journal:
    """The journal of an owner; made by `claim`. Each method blocks on the store; used by one thread at a time.

    A call that raised OSError may be repeated, except for RunDirectoryError, which is a subclass. Once a method has
    raised DeposedError, every call does.
    """

    def __init__(
        self, store: Store, layout: JournalLayout, term: int, follows: tuple[Followed, ...], identity: DriverIdentity
    ) -> None:
        self.term = term
        self._store = store
        self._layout = layout
        self._follows = follows
        self._identity = identity
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
        driver_of(store, layout, before.term)
        term = take(store, layout, identity, tail.highest)
        # Only now: the previous owner may have written more until this moment, and so may a process that deletes.
        after = tail.read_new()
        refuse_removed(store, layout, after.removal)
        records = after.records if after.afresh else before.records + after.records
        notes = tuple(dict.fromkeys((*before.notes, *after.notes)))
        return cls(store, layout, term, tail.position, identity), JournalContents(records, term, notes)

    def append(self, records: Sequence[AnyRecord]) -> None:
        """Write the records as one batch. When it returns, they are durable, and every later driver reads them.

        Until then the caller must not act on them. After an OSError the next call must pass the same records: it finds
        out whether they were written. Raises DeposedError when another driver has taken over.
        """
        if records:
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
        return Header(VERSION, self._identity.sparktrain, kind, self.term, number, 0, 0, self._follows)

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
        run = self._store.where(self._layout.path.rpartition("/")[0])
        try:
            driver = newest_driver(self._store, self._layout)
        except OSError:
            driver = None
        return DeposedError(
            f"another driver ({driver or 'unknown'}) has taken over {run}: this one (term {self.term}, "
            f"{self._identity}) ends; its records that were not confirmed as durable do not count"
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
            run = self._store.where(self._layout.path.rpartition("/")[0])
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

    Raises RunDirectoryError for the journal of a later sparktrain.
    """
    return driver_of(store, layout, survey(store, layout).term)


def refuse_removed(store: Store, layout: JournalLayout, number: int) -> None:
    """Raise RunDirectoryError for a driver that wants the run while there is the mark `number` of a removal.

    0 stands for no mark. Blocks on the store; raises OSError.
    """
    if number:
        run = store.where(layout.path.rpartition("/")[0])
        raise RunDirectoryError(
            f"run directory {run} is being deleted by {remover(store, layout, number) or 'another process'}: wait for "
            f"its end, or finish what an interrupted one has left by `sparktrain rm {run}`; or choose another name"
        )


def remover(store: Store, layout: JournalLayout, number: int) -> DriverIdentity | None:
    """The process that has put a mark of a removal; None when it cannot be read, or is gone. Blocks; raises OSError."""
    try:
        return msgspec.json.decode(store.read(layout.removal(number)), type=RemovalMark).who
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def take(store: Store, layout: JournalLayout, identity: DriverIdentity, highest: int) -> int:
    """Put the file of the next term above `highest`, the highest known one; returns its number.

    Blocks; raises OSError: the file may have been put, and then belongs to no driver.
    """
    for term in range(highest + 1, highest + _MOST_RIVALS):
        if store.put_if_absent(layout.term(term), msgspec.json.encode(_Term(VERSION, term, uuid4().hex, identity))):
            return term
    raise DeposedError(f"{store.where(layout.path)} was taken over by {_MOST_RIVALS} other drivers: try again")


def driver_of(store: Store, layout: JournalLayout, term: int) -> DriverIdentity | None:
    """The driver that has claimed a term; None for term 0, or where its file cannot be read. Blocks; raises OSError.

    Raises RunDirectoryError for the journal of a later sparktrain.
    """
    if term == 0:
        return None
    content = store.read(layout.term(term))
    where = store.where(layout.term(term))
    try:
        claim = msgspec.json.decode(content, type=_AnyTerm)
        check_version(claim.version, str(claim.who.get("sparktrain")), where)
        return msgspec.json.decode(content, type=_Term).who
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
