"""Follows a member's log while it grows, caps it, and shows its last lines."""

import ctypes
import os
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from sparktrain.base.clock import Clock
from sparktrain.executor.left_files import open_regular
from sparktrain.executor.log_noise import NoiseFilter, without_noise

CHUNK_BYTES = 256 * 1024
TAIL_BYTES = 64 * 1024
"""The size of the kept end of a capped log."""
SLACK_BYTES = 64 * 2**20
"""How far a log may grow past its cap on the local disk."""
POLL_S = 0.1
LINE_CHARS = 2000

_KEEP_SIZE_AND_PUNCH = 0x01 | 0x02  # FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE
_LIBC = ctypes.CDLL(None)
_LIBC.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

# The place of a crash comes first in its stack, and the frames of how a member starts would push it out.
_STARTING = re.compile(
    rb'(?m)^  File ".*/sparktrain/training/__main__\.py", line \d+ in main\n(?:  File "[^"\n]*", line \d+ in .*\n)+',
)


class LogFollower:
    """Reads a file that processes append to, and that may not exist yet. One iteration at a time, on one event loop:
    each starts at the first byte.

    It yields every byte up to the limit. When there are more, it adds a line that reports the cap, and the last 64 KiB
    at the end. When the file grows far past the limit, a hole in it frees its disk blocks between the limit and that
    end: what processes append meanwhile stays. Where the file system has no holes, the file is truncated to the limit,
    which loses what they append at that instant; so writers must open the file with O_APPEND.
    """

    def __init__(
        self,
        path: Path,
        limit_bytes: int,
        clock: Clock,
        *,
        tail_bytes: int = TAIL_BYTES,
        slack_bytes: int = SLACK_BYTES,
        is_whole: bool = True,
    ) -> None:
        """Without `is_whole` it leaves out what TensorFlow's libraries write about the machine: see `log_noise`."""
        self._is_whole = is_whole
        self._tail_bytes = tail_bytes
        self._most = limit_bytes + slack_bytes
        self._path = path
        self._limit = limit_bytes
        self._clock = clock
        self._finished = False
        self._hole_end = limit_bytes
        self._tail = b""
        """The end of the truncated part."""

    def finish(self) -> None:
        """Note that nothing is appended any more: the iteration stops at the end of the file."""
        self._finished = True

    def trim(self) -> None:
        """Keep the file within its bound on disk, as the iteration does, when none runs. Blocks on local disk.

        Raises OSError if a training function has replaced the file by something else.
        """
        with suppress(FileNotFoundError):
            # Training must not end because its output fills the disk of the host.
            size = os.lstat(self._path).st_size
            if size < self._hole_end:  # the training function has truncated it
                self._hole_end = self._limit
            if size - (self._hole_end - self._limit) <= self._most:
                return
            with open_regular(self._path, os.O_RDWR) as file:
                if _punch_hole(file.fileno(), self._limit, size - self._tail_bytes):
                    self._hole_end = size - self._tail_bytes
                else:
                    self._tail = self._last()
                    file.truncate(self._limit)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield chunks of at most 256 KiB as soon as they exist. Blocks on local disk for each. Raises OSError."""
        noise = None if self._is_whole else NoiseFilter()
        async for chunk in self._chunks():
            if piece := chunk if noise is None else noise(chunk):
                yield piece
        if noise is not None and (piece := noise.remainder()):
            yield piece

    async def _chunks(self) -> AsyncIterator[bytes]:
        sent = 0
        last = b""
        while sent < self._limit:
            finished = self._finished  # before the read, so that the end is the end
            self.trim()
            chunk = self._read(sent, min(CHUNK_BYTES, self._limit - sent))
            if chunk:
                yield chunk
                sent = sent + len(chunk)
                last = chunk[-1:]
            elif finished:
                return
            else:
                await self._clock.sleep(POLL_S)
        async for chunk in self._follow_past_cap(last):
            yield chunk

    async def _follow_past_cap(self, last: bytes) -> AsyncIterator[bytes]:
        """Yield what follows the cap: the marker, and the end of the rest."""
        marked = False
        while True:
            finished = self._finished
            self.trim()
            if not marked and (self._tail or self._read(self._limit, 1)):
                marked = True
                yield (b"" if last == b"\n" else b"\n") + self._marker()
            if finished:
                break
            await self._clock.sleep(POLL_S)
        if tail := self._last():
            yield tail

    def _last(self) -> bytes:
        """The last 64 KiB past the cap."""
        content = b""
        with suppress(FileNotFoundError):  # the training function has removed it
            start = max(self._limit, os.lstat(self._path).st_size - self._tail_bytes)
            content = self._read(start, self._tail_bytes)
        return (self._tail + content)[-self._tail_bytes :]

    def _read(self, start: int, size: int) -> bytes:
        try:
            with open_regular(self._path) as file:
                file.seek(start)
                return file.read(size)
        except FileNotFoundError:
            return b""

    def _marker(self) -> bytes:
        capped = f"log capped at {self._limit} bytes: the rest is dropped, set log_limit to keep more"
        return f"[sparktrain] {capped}\n".encode()


def _punch_hole(fd: int, start: int, end: int) -> bool:
    """Free the disk blocks of these bytes, which are zeros from now on: False where the file system cannot."""
    return bool(_LIBC.fallocate(fd, _KEEP_SIZE_AND_PUNCH, start, end - start) == 0)


def drop_noise(path: Path) -> None:
    """Take what TensorFlow's libraries wrote about the machine out of the short log of a process that is gone.

    Blocks on local disk. Raises OSError if a training function has replaced the file by something else.
    """
    with open_regular(path, os.O_RDWR) as file:
        content = file.read()
        if (cleaned := without_noise(content)) != content:
            file.seek(0)
            file.write(cleaned)
            file.truncate(len(cleaned))


def tail_lines(path: Path, n: int = 20) -> tuple[str, ...]:
    """The last `n` lines of a file that may not exist, safe to print: decoded, capped, control characters escaped.

    Neither lines of TensorFlow's libraries about the machine count, nor frames of a start. Blocks on local disk.
    """
    try:
        with open_regular(path) as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - CHUNK_BYTES))
            data = file.read(CHUNK_BYTES)
    except OSError:
        return ()
    data = without_noise(_STARTING.sub(b"", data))
    return tuple(_shown(line) for line in data.removesuffix(b"\n").split(b"\n")[-n:]) if data else ()


def lines_before(ending: str, path: Path, n: int = 20) -> tuple[str, ...]:
    """As `tail_lines`, without `ending` if the file ends with it."""
    last = tuple(_shown(line) for line in ending.encode().removesuffix(b"\n").split(b"\n"))
    lines = tail_lines(path, n + len(last))
    return lines[: -len(last)] if lines[-len(last) :] == last else lines[-n:]


def _shown(line: bytes) -> str:
    text = line.decode(errors="backslashreplace").rstrip("\r").rpartition("\r")[2]  # a progress bar's last state
    shown = _CONTROL.sub(lambda match: ascii(match.group())[1:-1], text[: LINE_CHARS + 1])
    return shown if len(shown) <= LINE_CHARS else f"{shown[: LINE_CHARS - 3]}..."
