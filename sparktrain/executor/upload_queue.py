"""Uploads what a member leaves to the coordinator: its log while it grows, then its files, small ones together.

No file of a training function ends the upload of another file, or the agent.
"""

import asyncio
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from sparktrain.base.ids import AgentId, Member
from sparktrain.executor.left_files import find, open_regular
from sparktrain.protocol import messages as m

Chunks = Callable[[], AsyncIterator[bytes]]
"""Opens the content of a file, from its start."""

CHUNK_BYTES = 256 * 1024
SMALL_BYTES = 64 * 1024
"""Files up to this size are sent together."""
NAMES_BYTES = 16 * 1024
"""The most bytes of all names in one parcel."""
MODEL = "model.keras"
"""The exported model: a file of a member beside its log and its folder `files`."""
SHOWN = 5
"""How many problems are listed."""

LONGEST_PROBLEM = 300
"""Characters."""


class Uploader(ABC):
    """Sends files of members to the coordinator."""

    @abstractmethod
    async def upload(self, header: m.UploadHeader, chunks: Chunks) -> m.UploadDone:
        """Send one file; returns when the coordinator has stored it. Raises as `Dialer.upload`."""


class Storing:
    """Uploads the files of one member below `home`. All methods belong to the agent's event loop."""

    def __init__(self, agent: AgentId, member: Member, home: Path, uploader: Uploader) -> None:
        self._agent = agent
        self._member = member
        self._home = home
        self._uploader = uploader
        self._problems: list[str] = []
        self._brought: set[str] = set()

    @property
    def problem(self) -> str:
        """The files that were not stored so far, with reasons, in one line; empty without a problem."""
        shown = map(_line, self._problems[:SHOWN])
        hidden_count = len(self._problems) - SHOWN
        return "; ".join(shown) + (f"; and {hidden_count:,} more" if hidden_count > 0 else "")

    async def bring(self, name: str, chunks: Chunks, *, grows: bool = False) -> None:
        """Upload one file, which `bring_all` then leaves out; with `grows`, one that is read while it grows.

        Raises nothing: an error becomes a problem of this file.
        """
        self._brought.add(name)
        try:
            await self._uploader.upload(m.UploadHeader(self._agent, self._member, name, grows=grows), chunks)
        except Exception as error:  # any error: the training function may have changed its files
            self._problems.append(f"{name}: {error}")

    def is_short(self, name: str, limit_bytes: int) -> bool:
        """Whether the file is regular, small enough to be sent with others, and in its limit. Blocks on local disk."""
        try:
            file_status = os.lstat(self._home / name)
        except OSError:
            return False
        return stat.S_ISREG(file_status.st_mode) and file_status.st_size <= min(SMALL_BYTES, limit_bytes)

    def has_content(self, name: str) -> bool:
        """Whether the file exists and is not empty. Blocks on local disk."""
        try:
            return os.lstat(self._home / name).st_size > 0
        except OSError:
            return False

    async def bring_all(self, *also: str) -> None:
        """Upload the model, all of `files`, and the files `also` that are not empty, but for those of `bring`.

        Raises nothing. Sends nothing without a file.
        """
        # A trial that leaves nothing costs no call: with short trials, uploads took longer than everything else.
        if self._nothing(also):
            return
        try:
            sizes = await asyncio.to_thread(self._files_to_upload, also)
        except Exception as error:
            self._problems.append(f"files: {error}")
            return
        for parcel in _parcels({path: size for path, size in sizes.items() if size <= SMALL_BYTES}):
            await self._bring_parcel(parcel)
        for path, size in sizes.items():
            if size > SMALL_BYTES:
                await self.bring(self._name(path), partial(_chunks, path))

    def _nothing(self, also: Sequence[str]) -> bool:
        """Whether the member has left no file at all. Blocks on local disk."""
        if os.path.lexists(self._home / MODEL) or any(map(self.has_content, also)):
            return False
        try:
            with os.scandir(self._home / "files") as entries:
                return next(entries, None) is None
        except OSError:
            return False

    def _files_to_upload(self, also: Sequence[str]) -> dict[Path, int]:
        """All files to upload, with their sizes; 0 for a file that is gone, which fails when it is read."""
        listing = find(self._home / "files")
        self._problems += listing.problems
        named_files = [
            self._home / name for name in (*filter(self.has_content, also), MODEL) if name not in self._brought
        ]
        new_files = [path for path in listing.files if self._name(path) not in self._brought]
        sizes = dict.fromkeys([*filter(os.path.lexists, named_files), *new_files], 0)
        for path in sizes:
            with suppress(OSError):
                sizes[path] = os.lstat(path).st_size
        return sizes

    # ---- small files

    async def _bring_parcel(self, parcel: dict[Path, int]) -> None:
        contents = await asyncio.to_thread(self._read, parcel)
        parts = tuple(m.Part(name, len(content)) for name, content in contents.items())
        if not parts:
            return
        try:
            header = m.UploadHeader(self._agent, self._member, "", parts)
            reply = await self._uploader.upload(header, partial(_one, b"".join(contents.values())))
        except Exception as error:
            self._problems += [f"{part.name}: {error}" for part in parts]
        else:
            self._problems += reply.refused

    def _read(self, parcel: dict[Path, int]) -> dict[str, bytes]:
        contents: dict[str, bytes] = {}
        for path, size in parcel.items():
            try:
                with open_regular(path) as file:
                    # No more than the size that was listed: the file may grow, and the header has the sizes of all
                    # parts.
                    contents[self._name(path)] = file.read(size)
            except OSError as error:
                self._problems.append(f"{self._name(path)}: {error.strerror or error}")
        return contents

    def _name(self, path: Path) -> str:
        return path.relative_to(self._home).as_posix()


def _parcels(sizes: dict[Path, int]) -> Iterator[dict[Path, int]]:
    """Group small files by the limits of one upload."""
    parcel: dict[Path, int] = {}
    names = 0
    for path, size in sizes.items():
        name = len(os.fsencode(path))
        full = len(parcel) == m.PARCEL_FILES or sum(parcel.values()) + size > m.PARCEL_BYTES
        if parcel and (full or names + name > NAMES_BYTES):
            yield parcel
            parcel = {}
            names = 0
        parcel[path] = size
        names += name
    if parcel:
        yield parcel


def _line(problem: str) -> str:
    """A printable, short form: file names and errors about them come from the training function."""
    line = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in problem)
    return line if len(line) <= LONGEST_PROBLEM else f"{line[: LONGEST_PROBLEM - 3]}..."


async def _one(chunk: bytes) -> AsyncIterator[bytes]:
    yield chunk


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(open_regular, path) as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk
