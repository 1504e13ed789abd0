"""The journal of a run, as the driver in charge writes it.

Who puts the file of the next epoch is in charge from then on; it reads what there is only after that. A batch counts
once its file is there and no later epoch was there after it: so whatever a driver has acted on is read by the next one.
There is no lock, and no clock decides: a driver that was stopped for an hour and wakes up can put one more batch, which
nobody follows, and learns from the check after it that it has been deposed.

The order is that of Delta Lake's log: put if absent, under numbers without a gap.
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
    """A driver, for those that look for it, and for people."""

    host: str
    pid: int
    started: float
    """Seconds since 1970, by its own clock."""
    sparktrain: str
    """Its version."""
    address: str = ""
    """Where its coordinator listens, HOST:PORT; empty when it does not."""
    fingerprint: str = ""
    """Of the coordinator's certificate; empty when it does not listen."""
    purpose: str = ""
    """What it has taken over the run for, when not to run its trials."""
    application: str = ""
    """Of YARN, in a container of which it is, as in `1795280325843_0001`; empty outside of YARN."""
    attempt: int = 0
    """YARN starts an application again whose driver is lost: which time it is, from 1."""

    def replaces(self, other: "DriverIdentity") -> bool:
        """YARN has given up the other one, and started this one to go on with the same work."""
        return self.application == other.application != "" and self.attempt > other.attempt

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}{f' ({self.purpose})' if self.purpose else ''}"


class _Epoch(Struct, frozen=True):
    """The file by which a driver takes over."""

    version: int
    epoch: int
    nonce: str
    """So that no two drivers ever put the same bytes: a store may read back to find out whose file it is."""
    who: DriverIdentity


class _AnyEpoch(Struct, frozen=True):
    """As much of that file as any later version has too."""

    version: int
    who: dict[str, object]


class Journal:
    """The journal of the driver in charge: from `claim`. Each method blocks on the store; for one thread at a time.

    What raises OSError may be called again; but not RunDirectoryError, which is one of those. Once a method has raised
    DeposedError, every call does.
    """

    def __init__(
        self, store: Store, layout: JournalLayout, epoch: int, follows: tuple[Followed, ...], who: DriverIdentity
    ) -> None:
        self.epoch = epoch
        self._store = store
        self._layout = layout
        self._follows = follows
        self._who = who
        self._number = 0
        """Of the newest batch that counts."""
        self._unsettled: bytes | None = None
        """The batch of an `append` that has failed: it may be there all the same."""
        self._deposed: DeposedError | None = None

    @classmethod
    def claim(cls, store: Store, layout: JournalLayout, who: DriverIdentity) -> tuple["Journal", JournalContents]:
        """Take over the run: from here on no other driver's records count. With all records that do.

        Blocks. Raises JournalCorruptError or RunDirectoryError, and deposes nobody, when the journal cannot be read;
        and OSError from the store: the next call takes a later epoch.
        """
        tail = Tail(store, layout)
        before = tail.more()
        _newest(store, layout, before.epoch)
        epoch = take(store, layout, who, tail.highest)
        # Only now: a driver that was in charge until this moment may have written more.
        after = tail.more()
        records = after.records if after.afresh else before.records + after.records
        notes = tuple(dict.fromkeys((*before.notes, *after.notes)))
        return cls(store, layout, epoch, tail.position, who), JournalContents(records, epoch, notes)

    def append(self, records: Sequence[AnyRecord]) -> None:
        """Write the records as one batch. When it returns they are durable, and every later driver reads them.

        Until then nothing may be done that depends on them. After an OSError the next call must have the same records:
        it finds out whether they were written. Raises DeposedError when another driver has taken over.
        """
        if records:
            self._put(records)

    def settle(self) -> None:
        """Write an empty batch: what was read at the take-over is what counts, whatever else was there. As `append`.

        After other batches it is proof that these were whole: a reader does not take the newest of them for one that
        was never acknowledged when it is cut or missing.
        """
        self._put(())

    def compact(self, records: Sequence[AnyRecord]) -> None:
        """Write a snapshot, and delete the files that the one before it has made superfluous. As `compaction`."""
        self.compaction().write(records)

    def compaction(self) -> "Compaction":
        """What puts fewer words in the place of all that was appended so far, while more is appended; does not block.

        Comes after an `append` that returned; no second one is begun before the first has ended.
        """
        if self._number == 0 or self._unsettled is not None:
            raise BugError("a journal is compacted only after an append that has returned")
        return Compaction(self._store, self._layout, self._header(SNAPSHOT, self._number))

    def check(self) -> None:
        """Raises DeposedError when another driver has taken over. One call of the store, which may raise OSError."""
        if self._deposed is None and self._store.exists(self._layout.epoch(self.epoch + 1)):
            self._deposed = self._told_deposed()
        if self._deposed is not None:
            raise self._deposed

    # ---- inside

    def _put(self, records: Sequence[AnyRecord]) -> None:
        number = self._number + 1
        content = encode(self._header(BATCH, number), records)
        if self._deposed is not None:
            raise self._deposed
        if self._unsettled not in (None, content):
            raise BugError(f"batch {number} of epoch {self.epoch} was tried with other records before: try those again")
        self._unsettled = content
        created = self._store.put_if_absent(self._layout.batch(self.epoch, number), content)
        self.check()
        if not created:
            self._recognise(self._layout.batch(self.epoch, number), content)
        self._number, self._unsettled = number, None

    def _header(self, kind: str, number: int) -> Header:
        return Header(VERSION, self._who.sparktrain, kind, self.epoch, number, 0, 0, self._follows)

    def _recognise(self, path: str, content: bytes) -> None:
        """A file that was there already must be of an earlier attempt: nobody else writes in this epoch."""
        found = self._store.read(path)
        if found == content:
            return
        where = self._store.where(path)
        if content.startswith(found):
            raise RunDirectoryError(
                f"journal file {where} has {len(found)} of the {len(content)} bytes that were written to it: the store "
                "does not create files as a whole; resume the run in a store that does"
            )
        raise BugError(f"journal file {where} was written by somebody else in epoch {self.epoch}, which is this one's")

    def _told_deposed(self) -> DeposedError:
        run = self._store.where(self._layout.path.rpartition("/")[0])
        try:
            who = newest_driver(self._store, self._layout)
        except OSError:
            who = None
        return DeposedError(
            f"another driver ({who or 'unknown'}) has taken over {run}: this one (epoch {self.epoch}, {self._who}) "
            "ends; what it has not been told to be durable does not count"
        )


class Compaction:
    """One snapshot, and the files that it makes superfluous. Used by one thread, be it another than the journal's.

    It writes no file that the journal does, and deletes none that a reader needs, whatever is appended meanwhile.
    """

    def __init__(self, store: Store, layout: JournalLayout, header: Header) -> None:
        """`header` is that of the snapshot."""
        self._store = store
        self._layout = layout
        self._header = header

    def write(self, records: Sequence[AnyRecord]) -> None:
        """Write the snapshot, and delete what the one before it has made superfluous. Blocks on the store.

        `records` must say all that the journal said when this was begun, in fewer words. Raises OSError, and
        DeposedError when another driver has taken over; the journal is whole in any case, and wherever this ends.
        """
        epoch, number = self._header.epoch, self._header.number
        path = self._layout.snapshot(epoch, number)
        created = self._store.put_if_absent(path, encode(self._header, records))
        if self._store.exists(self._layout.epoch(epoch + 1)):
            run = self._store.where(self._layout.path.rpartition("/")[0])
            raise DeposedError(f"another driver has taken over {run}: nothing is deleted for this one (epoch {epoch})")
        if created or self._is_whole(path, epoch, number):
            self._delete_superfluous()

    def _is_whole(self, path: str, epoch: int, number: int) -> bool:
        where = self._store.where(path)
        return decode(self._store.read(path), where, SNAPSHOT, epoch, number).fault is None

    def _delete_superfluous(self) -> None:
        """Keep the newest snapshot, the newest one before it that can be read, and all that comes after that."""
        listing = survey(self._store, self._layout)
        before = (*self._header.follows, Followed(self._header.epoch, self._header.number - 1))
        older = sorted((each for each in listing.snapshots if counts(before, Followed(*each))), reverse=True)
        kept = next((each for each in older if self._is_whole(self._layout.snapshot(*each), *each)), None)
        if kept is None:
            return
        # Snapshots first: what is left when this ends in the middle are never those that lack what comes after them.
        snapshots = sorted(each for each in listing.snapshots if each < kept)
        self._store.delete_all([self._layout.snapshot(*each) for each in snapshots])
        batches = sorted(each for each in listing.batches if each <= kept)
        self._store.delete_all([self._layout.batch(*each) for each in batches])


def newest_driver(store: Store, layout: JournalLayout) -> DriverIdentity | None:
    """The driver in charge, alive or not; None when there was none, or its file cannot be read. Blocks; raises OSError.

    Raises RunDirectoryError for the journal of a later sparktrain.
    """
    return _newest(store, layout, survey(store, layout).epoch)


def take(store: Store, layout: JournalLayout, who: DriverIdentity, highest: int) -> int:
    """Put the file of the next epoch above `highest`, the highest that is known; its number.

    Blocks; raises OSError: maybe it was put, and is nobody's.
    """
    for epoch in range(highest + 1, highest + _MOST_RIVALS):
        if store.put_if_absent(layout.epoch(epoch), msgspec.json.encode(_Epoch(VERSION, epoch, uuid4().hex, who))):
            return epoch
    raise DeposedError(f"{store.where(layout.path)} was taken over by {_MOST_RIVALS} other drivers: try again")


def _newest(store: Store, layout: JournalLayout, epoch: int) -> DriverIdentity | None:
    """Who has claimed the epoch, which is the newest."""
    if epoch == 0:
        return None
    content, where = store.read(layout.epoch(epoch)), store.where(layout.epoch(epoch))
    try:
        found = msgspec.json.decode(content, type=_AnyEpoch)
        check_version(found.version, str(found.who.get("sparktrain")), where)
        return msgspec.json.decode(content, type=_Epoch).who
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
