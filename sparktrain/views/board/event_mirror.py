"""Copies the event files of a run, in any store, to a local folder, and only what is new at each round."""

import logging
import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sparktrain.base.clock import SystemClock
from sparktrain.rundir.event_files import is_shown, part_of, segment
from sparktrain.store.base import PIECE_BYTES, Store

SHORTEST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 60.0
_SHARE = 0.1
"""Most of the time that rounds take: a store with many files is looked at less often."""
_RAREST = 16
"""A file that stays as it is is looked at in each 16th round at least."""

_OF_MEMBER = re.compile(r"(?:.*/)?trials/(\d+)/generation-(\d+)/rank-(\d+(?:-restart-\d+)?)/files/(.+)")

logger = logging.getLogger("sparktrain")


class _Copy:
    """One event file, as far as it was copied."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.size = 0
        self._rounds = 1
        self._rounds_to_skip = 0

    def is_due(self) -> bool:
        """Whether this round looks at the file. Call it once in each round."""
        self._rounds_to_skip -= 1
        return self._rounds_to_skip < 0

    def looked(self, grown: bool) -> None:
        """Note whether a look found anything."""
        self._rounds = 1 if grown else min(_RAREST, 2 * self._rounds)
        self._rounds_to_skip = self._rounds - 1

    def append(self, piece: bytes) -> None:
        """Add `piece` to the local file. Raises OSError."""
        self.target.parent.mkdir(parents=True, exist_ok=True)
        with self.target.open("ab") as file:
            file.write(piece)
        self.size += len(piece)


class EventMirror:
    """The event files beneath a folder of a store. For one thread at a time."""

    def __init__(self, store: Store, folder: str, target: Path) -> None:
        """`target` is a folder that this mirror alone writes. It gets a folder for each trial, such as `0003/train`."""
        self._store = store
        self._folder = folder
        self._target = target
        self._copies: dict[str, _Copy] = {}
        self._problem = ""

    def follow(self, over: threading.Event) -> None:
        """Copy until `over` is set, at most each 2 s. Blocks. An error of the store is logged, and copying retried."""
        clock = SystemClock()
        while not over.is_set():
            started = clock.now()
            try:
                self.round(over)
            except OSError as error:
                self._log(f"{self._store.where(self._folder)}: {error}")
            spent = clock.now() - started
            over.wait(min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, spent / _SHARE)))

    def round(self, over: threading.Event | None = None) -> int:
        """Copy what is new, and return its bytes. Blocks on the store. Raises OSError when it cannot be listed."""
        copied = 0
        for path, starts in self._listed().items():
            if over is not None and over.is_set():
                break
            copy = self._copy(path)
            if not copy.is_due():
                continue
            old_size = copy.size
            try:
                for piece in self._news(path, copy, starts):
                    copy.append(piece)
            except FileNotFoundError:
                pass  # the complete file has replaced its parts: the next round finds it
            except OSError as error:
                self._log(f"{self._store.where(path)}: {error}")
            copy.looked(copy.size > old_size)
            copied += copy.size - old_size
        return copied

    def _listed(self) -> Mapping[str, Sequence[int] | None]:
        """The event files: None for a whole one, otherwise the first byte of each part."""
        complete_files: set[str] = set()
        parts: defaultdict[str, list[int]] = defaultdict(list)
        for path in self._store.list(self._folder):
            if (part := part_of(path)) is not None:
                parts[part[0]].append(part[1])
            elif is_shown(path):
                complete_files.add(path)
        # A store that shows a file only when it is complete has parts of it until then. The complete file comes last,
        # and counts.
        return {**{path: sorted(starts) for path, starts in parts.items()}, **dict.fromkeys(complete_files)}

    def _news(self, path: str, copy: _Copy, starts: Sequence[int] | None) -> Iterator[bytes]:
        """The bytes after those that were copied."""
        if starts is None:
            while piece := self._store.read_range(path, copy.size, PIECE_BYTES):
                yield piece
        for start in starts or ():
            if start == copy.size:
                yield self._store.read(segment(path, start))

    def _copy(self, path: str) -> _Copy:
        if path not in self._copies:
            targets = {copy.target for copy in self._copies.values()}
            relative = path.removeprefix(f"{self._folder}/") if self._folder else path
            names = (self._target / name for name in (shown_name(relative), f"files/{relative}"))
            self._copies[path] = _Copy(next(name for name in names if name not in targets))
        return self._copies[path]

    def _log(self, problem: str) -> None:
        """Log a problem when it is another one than before."""
        if problem != self._problem:
            self._problem = problem
            logger.warning("TensorBoard lacks new events, and copying them is retried: %s", problem)


def shown_name(path: str) -> str:
    """The name that TensorBoard shows for the file at `path`: short in the first generation, and for the chief."""
    match = _OF_MEMBER.fullmatch(path)
    if match is None:
        return path
    trial, generation, rank, name = match.groups()
    parts = [trial, f"generation-{generation}" * (generation != "1"), f"rank-{rank}" * (rank != "0"), name]
    return "/".join(filter(None, parts))
