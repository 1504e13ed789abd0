"""Histories of a journal: drivers that take over from each other, and a reader, that take turns at each operation.

They run the product's own functions, each in a thread of its own, see `histories.Actor`: a crash is a driver that gets
no more turns, and a zombie is one that gets them after another one has taken over.
"""

import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from sparktrain.errors import BugError, DeposedError, JournalCorruptError, RunDirectoryError
from sparktrain.rundir.journal.reader import JournalContents, Tail, read
from sparktrain.rundir.journal.writer import Journal
from tests.unit.rundir.journal.journals import LAYOUT, WHO, facts, numbers_of
from tests.unit.store.gated import Crash, GatedStore, MemoryStore
from tests.unit.store.histories import Actor

ATTEMPTS = 3
APPENDS = 6

T = TypeVar("T")


class CuttingStore(MemoryStore):
    """A disk that loses power: when `cut_next` is set, the next new file is written in part, and its writer dies."""

    def __init__(self) -> None:
        super().__init__()
        self.cut_next = False
        self.corrupted: set[str] = set()
        """Paths of files that were cut or corrupted."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if not self.cut_next or path in self.files:
            return super().put_if_absent(path, data)
        self.cut_next = False
        self.files[path] = data[: zlib.crc32(data) % len(data)]
        self.corrupted.add(path)
        raise Crash


class SlowListing(GatedStore):
    """Lists in two steps: files that change between them are listed or not, as the contract of a store allows."""

    def list(self, prefix: str = "") -> list[str]:
        first, second = set(super().list(prefix)), set(super().list(prefix))
        return sorted((first & second) | {path for path in first ^ second if zlib.crc32(path.encode()) % 2})


class World:
    """The files of a journal, the actors that use them, and the facts that were confirmed to drivers."""

    def __init__(self) -> None:
        self.files = CuttingStore()
        self.actors: list[Actor] = []
        self.acknowledged: list[int] = []
        self.in_charge = 0
        """The highest term with a driver that has read the journal."""
        self.confirmed: dict[int, list[int]] = {}
        """Acknowledged facts by term."""
        self.histories: dict[int, list[int]] = {}
        """The history of each driver, by term, once its first batch is durable."""
        self.facts = 0
        self._compacting: dict[int, Actor] = {}
        """The newest compaction of each driver, by term."""
        self._checked: tuple[str, ...] = ()

    def start(self, work: Callable[[Actor], None]) -> Actor:
        started = Actor(work, self.files)
        self.actors = [*(each for each in self.actors if not each.over), started]
        return started

    def close(self) -> None:
        for each in self.actors:
            each.crash()

    def rot(self) -> None:
        """Flip a bit of the newest snapshot, unless the previous one is corrupt already."""
        newest = [path for path in sorted(self.files.files) if "snapshot" in path][-2:]
        if len(newest) == 2 and not self.files.corrupted.intersection(newest):
            data = self.files.files[newest[-1]]
            self.files.files[newest[-1]] = data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]
            self.files.corrupted.add(newest[-1])

    # ---- actors

    def drive(self) -> None:
        """Start a driver that takes over the run."""
        self.start(self._driver)

    def _driver(self, actor: Actor) -> None:
        store = SlowListing(self.files, actor.gate)
        try:
            journal, opened = patiently(lambda: Journal.claim(store, LAYOUT, WHO))
            history = self._opened(journal, opened)
            for count in range(1, APPENDS + 1):
                self._append(journal, history)
                if count % 2 == 0:
                    self._compact(journal, tuple(history))
        except DeposedError:
            return
        except BugError as error:
            raise AssertionError(f"BROKEN: {error}") from error
        except JournalCorruptError as error:
            raise AssertionError(f"UNREADABLE: {error}") from error

    def _opened(self, journal: Journal, opened: JournalContents) -> list[int]:
        """Check that a driver which has taken over knows all that earlier drivers had confirmed, once."""
        history = numbers_of(opened.records)
        older = [fact for term, facts in self.confirmed.items() if term < journal.term for fact in facts]
        self._check_history(history, older)
        self.in_charge = max(self.in_charge, journal.term)
        return history

    def _compact(self, journal: Journal, history: tuple[int, ...]) -> None:
        """Compact in a separate actor; one at a time for each driver, and it may outlive its driver."""
        before = self._compacting.get(journal.term)
        if before is not None and not before.over:
            return
        compaction = journal.compaction()

        def work(actor: Actor) -> None:
            compaction._store = SlowListing(self.files, actor.gate)
            with suppress(OSError, DeposedError):
                compaction.write(facts(*history))

        self._compacting[journal.term] = self.start(work)

    def _append(self, journal: Journal, history: list[int]) -> None:
        new = tuple(range(self.facts + 1, self.facts + 2 + self.facts % 3))
        self.facts = new[-1]
        deposed = LAYOUT.term(journal.term + 1) in self.files.files
        patiently(lambda: journal.append(facts(*new)))
        assert not deposed, f"DEAF: term {journal.term} was deposed before, and continues"
        assert journal.term >= self.in_charge, f"FORKED: term {journal.term} continues under term {self.in_charge}"
        self.acknowledged += new
        self.confirmed.setdefault(journal.term, []).extend(new)
        history += new
        self.histories[journal.term] = list(history)

    def watch(self) -> None:
        """Start a reader that follows the journal."""

        def work(actor: Actor) -> None:
            tail, seen = Tail(SlowListing(self.files, actor.gate), LAYOUT), []
            for _ in range(4):
                known = list(self.acknowledged)
                try:
                    opened = patiently(tail.read_new)
                except JournalCorruptError as error:
                    raise AssertionError(f"UNREADABLE: {error}") from error
                seen = numbers_of(opened.records) if opened.afresh else [*seen, *numbers_of(opened.records)]
                self._check_history(seen, known)

        self.start(work)

    # ---- what must hold at every moment

    def check(self) -> None:
        names = (*self.files.files, *self.files.corrupted)
        if names == self._checked:
            return
        self._checked = names
        try:
            found = numbers_of(read(self.files, LAYOUT).records)
        except (JournalCorruptError, FileNotFoundError) as error:
            raise AssertionError(f"UNREADABLE: {error}") from error
        self._check_history(found)
        for history in self.histories.values():
            known = [fact for fact in history if fact in self.acknowledged]
            assert [fact for fact in found if fact in known] == known, f"REORDERED: {found}, and {known} was known"
        if self.histories:
            newest = self.histories[max(self.histories)]
            assert found[: len(newest)] == newest, f"CHANGED: {found}, and {newest} was known"

    def _check_history(self, found: list[int], known: list[int] | None = None) -> None:
        known = self.acknowledged if known is None else known
        assert len(found) == len(set(found)), f"TWICE: {found}"
        assert [fact for fact in found if fact in known] == known, f"LOST: {known} was confirmed, and {found} is read"


def patiently(call: Callable[[], T]) -> T:
    """Retry as a driver does: after an error of the store, never after a refusal."""
    for _ in range(ATTEMPTS - 1):
        try:
            return call()
        except RunDirectoryError:
            raise
        except OSError:
            continue
    return call()
