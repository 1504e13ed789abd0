"""TensorBoard's event files in a run directory, which readers see grow in every store."""

import errno

from sparktrain.base.clock import Clock
from sparktrain.store.base import PIECE_BYTES, Store, WriteStream

FLUSH_S = 5.0
_MARK = "tfevents"
_PLUGINS = "/plugins/"
_SEGMENTS = "/growing/"


def is_events(path: str) -> bool:
    """Whether the file at `path` is one to which a program appends events."""
    return _MARK in path.rpartition("/")[2]


def is_shown(path: str) -> bool:
    """Whether TensorBoard reads the file at `path`: events, or what a plugin such as its profiler has written."""
    return is_events(path) or _PLUGINS in f"/{path}"


def segments_of(path: str) -> str:
    """The folder with the parts of the event file `path` of a member, as long as the file itself is not complete."""
    home, _, name = path.partition("/files/")
    return f"{home}{_SEGMENTS}{name}"


def segment(path: str, start: int) -> str:
    """The part of the event file `path` that starts at byte `start`."""
    return f"{segments_of(path)}/{start:012d}"


def part_of(path: str) -> tuple[str, int] | None:
    """The event file, and the first byte, of the part at `path`; None for any other file."""
    home, growing, segment = path.partition(_SEGMENTS)
    name, _, start = segment.rpartition("/")
    return (f"{home}/files/{name}", int(start)) if growing and name and start.isdecimal() else None


def open_growing(store: Store, path: str, clock: Clock) -> WriteStream:
    """Create the event file `path`, so that readers see it while it grows. Blocks; raises as `Store.open_stream`."""
    return store.open_stream(path) if store.shows_streams else SegmentedStream(store, path, clock)


def clear_growing(store: Store, path: str) -> None:
    """Delete a file that a writer before may have left, and parts of it. Blocks; raises OSError."""
    store.delete_all([path, *(store.list(segments_of(path)) if "/files/" in path else ())])


class SegmentedStream(WriteStream):
    """A file in a store that shows files only when they are complete: parts of it appear until it does."""

    def __init__(self, store: Store, path: str, clock: Clock) -> None:
        self._store = store
        self._path = path
        self._clock = clock
        self._waiting = bytearray()
        self._segments: list[str] = []
        self._size = 0
        """How many bytes the parts have."""
        self._flushed = clock.now() - FLUSH_S
        self._closed = False

    def write(self, data: bytes) -> None:
        """See base class. A part appears at most each five seconds, and for each 4 MiB."""
        if self._closed:
            raise ValueError(f"{self._store.where(self._path)} is closed: it accepts no more data")
        self._waiting += data
        if len(self._waiting) >= PIECE_BYTES or self._clock.now() - self._flushed >= FLUSH_S:
            self._flush()

    def close(self) -> None:
        """See base class. The complete file replaces its parts."""
        if self._closed:
            return
        self._closed = True
        if self._segments:
            self._join()
        elif not self._store.put_if_absent(self._path, bytes(self._waiting)):
            raise FileExistsError(errno.EEXIST, "it exists already", self._store.where(self._path))

    def _flush(self) -> None:
        name = segment(self._path, self._size)
        self._store.put_if_absent(name, bytes(self._waiting))
        self._segments.append(name)
        self._size += len(self._waiting)
        self._waiting.clear()
        self._flushed = self._clock.now()

    def _join(self) -> None:
        file = self._store.create(self._path)
        try:
            for segment in self._segments:
                file.write(self._store.read(segment))
            file.write(bytes(self._waiting))
            file.publish()
        finally:
            file.discard()
        # After the whole file is there, so that a reader misses no event in between.
        self._store.delete_all(self._segments)
