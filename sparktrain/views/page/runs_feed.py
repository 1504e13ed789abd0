"""Follows the runs of a directory for the readers of their page: a row for each, and the changes since then.

A run that has ended is read once. It is read again when its journal has other files: a driver that resumes it claims a
term there. One folder of each run is listed for that, in turn, for a share of the time. Runs that train have a thread
of their own, so that neither thousands of other runs nor a driver that does not answer delay them; and so have runs
without a driver, which are asked again in turn: one that was too busy to answer in time would else look gone for long.
"""

import threading
from collections import deque
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from sparktrain.base.clock import Clock
from sparktrain.base.threads import spawn
from sparktrain.config.versions import installed_versions
from sparktrain.errors import StoreError, StoreTimeoutError
from sparktrain.runs.listing.ended_row import ended_row
from sparktrain.runs.listing.run_folder import FolderContents, RunFolder
from sparktrain.runs.listing.run_list import READERS, RowReading, read_row, reading_of, unreadable_row
from sparktrain.runs.listing.run_row import RunRow
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.watcher import Observer
from sparktrain.store.parallel import spread
from sparktrain.views.page.event_feed import EventFeed
from sparktrain.views.report.encoding import Live, encoded
from sparktrain.views.report.views.runs_document import RunsDocument

LIVE_S = 1.0
"""Time between two looks at the runs that train."""
FOLDER_S = 2.0
"""Time between two looks at the directory, for new runs and for ended ones that have another driver."""
GONE_S = 15.0
"""Time between two questions to drivers that did not answer."""
_CHUNK = 250
"""Rows that appear at a time: the first ones do not wait for thousands."""
_CHECKED_S = 0.2
"""How long one look at the directory checks runs that have ended."""

Signature = tuple[str, ...]
"""The names of the files of a journal."""
_READ_AGAIN: Signature = ("/",)
"""No journal has these."""


class RunsEvent(Struct, frozen=True, omit_defaults=True):
    """A change, as a patch of the document."""

    id: int
    rows: Sequence[msgspec.Raw]
    """The rows that are new or other than before."""
    removed: Sequence[str] = ()
    """The runs that are no longer there."""
    left_out: int = 0
    unread: int = 0


class RunsFeed(EventFeed):
    """The rows of a directory, for any number of readers. `document`, `since` and `place` are for any thread."""

    def __init__(self, folder: RunFolder, clock: Clock) -> None:
        """Reads nothing yet: see `follow`."""
        super().__init__(clock)
        self._folder = folder
        self._places: dict[str, RunLocation] = {}
        self._rows: dict[str, bytes] = {}
        """The JSON of each row."""
        self._ended: dict[str, Signature] = {}
        """The runs with a row that stays as it is until their journal has other files."""
        self._open: dict[str, Observer | None] = {}
        """The others, with what follows them."""
        self._absent_names: deque[str] = deque()
        """The runs without a driver, in the order in which they are asked again."""
        self._left_out = 0
        self._unchecked = 0
        """Folders that may be runs, and were not looked at."""
        self._turn = 0
        """How many runs that have ended were checked: where the next look continues."""
        # The user who has just started the page is about to open it.
        self._note_reader()

    # ---- for readers

    def document(self, live: Live) -> bytes:
        """The JSON of all rows that are read, as they are now. Does not block."""
        self._note_reader()
        with self._news:
            document = RunsDocument(
                kind="runs",
                made=self._clock.wall(),
                sparktrain=installed_versions().get("sparktrain", "unknown"),
                directory=self._folder.where,
                rows=[msgspec.Raw(row) for row in self._rows.values()],
                left_out=self._left_out,
                unread=self._unread,
                event=self._number,
                live=live,
            )
        return encoded(document)

    def place(self, name: str) -> RunLocation | None:
        """The run in the folder of this name; None where there is none."""
        with self._news:
            return self._places.get(name)

    @property
    def _unread(self) -> int:
        return self._unchecked + len(self._places.keys() - self._rows.keys())

    def _everything(self) -> bytes:
        return self._event(self._number, list(self._rows.values()), ())

    # ---- the runs

    def follow(self, over: threading.Event) -> None:
        """Look at the runs while the page is read, until `over` is set. Blocks."""
        spawn(lambda: self._repeat(over, self.look_at_live, LIVE_S), "sparktrain-page-live")
        spawn(lambda: self._repeat(over, self.look_at_gone, GONE_S), "sparktrain-page-gone")
        self._repeat(over, self.look_at_folder, FOLDER_S)

    def look_at_folder(self) -> None:
        """Read new runs, and check whether ended ones have another driver. Blocks on the store; for one thread.

        Raises StoreTimeoutError, and other errors of the store of the directory itself.
        """
        names = self._folder.new_names()
        for start in range(0, max(1, len(names)), _CHUNK):
            self._folder.check(names[start : start + _CHUNK])
            self._unchecked = max(0, len(names) - start - _CHUNK)
            self._take(self._folder.contents())
        self._check_ended()

    def _take(self, contents: FolderContents) -> None:
        """Forget the runs that are no longer there, and read the new ones."""
        names = {place.layout.path for place in contents.places}
        with self._news:
            removed = [name for name in self._places if name not in names]
            for name in removed:
                self._forget(name)
            self._places = {place.layout.path: place for place in contents.places}
            has_news = bool(removed) or contents.left_out != self._left_out
            self._left_out = contents.left_out
            pending = self._places.keys() - self._rows.keys() - self._open.keys()
            unread = [place for name, place in self._places.items() if name in pending]
            if has_news or unread:
                self._announce(lambda number: self._event(number, [], removed))
        if unread:
            self._read_ended(unread)

    def look_at_live(self) -> None:
        """Read what is new of runs that train, and the runs that need their journal. Blocks; for one thread.

        A driver that does not answer takes 2 s. Raises StoreTimeoutError.
        """
        with self._news:
            names = list(self._open)
        for start in range(0, len(names), READERS):  # in small parts: each row appears when it is read
            spread(lambda name, _: self._look_at(name), names[start : start + READERS], READERS)

    def look_at_gone(self) -> None:
        """Ask some of the drivers again that did not answer. Blocks as `look_at_live`; for one thread."""
        with self._news:
            names = [self._absent_names.popleft() for _ in range(min(READERS, len(self._absent_names)))]
            # A run that was read meanwhile is not asked: it is open, or has ended.
            names = [name for name in dict.fromkeys(names) if name in self._ended]
        spread(lambda name, _: self._look_at(name), names, READERS)

    # ---- one run

    def _read_ended(self, places: Sequence[RunLocation]) -> None:
        """Publish the rows of runs that small files are enough for, and leave the others to the other thread."""
        readings = spread(lambda place, _: self._short_reading(place), places, READERS)
        with self._news:
            rows = []
            for place, (row, signature) in zip(places, readings, strict=True):
                name = place.layout.path
                if row is None:
                    self._open.setdefault(name, None)
                else:
                    self._ended[name] = signature
                    rows += self._news_of(row)
            self._announce(lambda number: self._event(number, rows, ()))

    def _short_reading(self, place: RunLocation) -> tuple[RunRow | None, Signature]:
        try:
            signature = tuple(place.store.entries(place.layout.journal.path))
            return ended_row(place, signature), signature
        except StoreTimeoutError:
            raise
        except OSError:  # `_look_at` finds out why
            return None, ()

    def _check_ended(self) -> None:
        """Check the ended runs of one turn, for a share of the time; those with another driver are open again."""
        until = self._clock.now() + _CHECKED_S
        with self._news:
            ended = list(self._ended.items())
        for _ in range(0, len(ended), READERS):
            start = self._turn % len(ended)
            part = ended[start : start + READERS]
            self._turn = start + len(part)
            changed = spread(lambda entry, _: self._has_changed(*entry), part, READERS)
            with self._news:
                for (name, _), is_changed in zip(part, changed, strict=True):
                    if is_changed and self._ended.pop(name, None) is not None:
                        self._open[name] = None
            if self._clock.now() >= until:
                return

    def _has_changed(self, name: str, signature: Signature) -> bool:
        place = self.place(name)
        if place is None:
            return False
        try:
            return tuple(place.store.entries(place.layout.journal.path)) != signature
        except StoreTimeoutError:
            raise
        except OSError:
            return True

    def _look_at(self, name: str) -> None:
        place = self.place(name)
        with self._news:
            observer = self._open.get(name)
        if place is None:
            return
        signature: Signature = ()
        try:
            signature = tuple(place.store.entries(place.layout.journal.path))
            reading = read_row(place, self._clock) if observer is None else reading_of(place, observer)
        except FileNotFoundError:
            return  # it was deleted, as the next look at the directory shows
        except StoreTimeoutError:
            raise
        except (StoreError, OSError) as error:
            reading = RowReading(unreadable_row(place, str(error)))
        self._show(name, reading, signature)

    def _show(self, name: str, reading: RowReading, signature: Signature) -> None:
        with self._news:
            if name not in self._places:
                return
            if reading.row.state == "running":
                self._open[name] = reading.observer
                self._ended.pop(name, None)
            else:
                self._open.pop(name, None)
                # What cannot be read may be put back without a driver, so that the journal does not show it.
                self._ended[name] = signature if reading.row.readable else _READ_AGAIN
                if reading.row.state == "driver gone":
                    self._absent_names.append(name)
            if rows := self._news_of(reading.row):
                self._announce(lambda number: self._event(number, rows, ()))

    def _news_of(self, row: RunRow) -> list[bytes]:
        """Take a row: itself where it is new, nothing where it is as before."""
        content = encoded(row)
        if row.id not in self._places or self._rows.get(row.id) == content:
            return []
        self._rows[row.id] = content
        return [content]

    def _forget(self, name: str) -> None:
        self._rows.pop(name, None)
        self._ended.pop(name, None)
        self._open.pop(name, None)

    def _event(self, number: int, rows: Sequence[bytes], removed: Sequence[str]) -> bytes:
        return encoded(RunsEvent(number, list(map(msgspec.Raw, rows)), removed, self._left_out, self._unread))
