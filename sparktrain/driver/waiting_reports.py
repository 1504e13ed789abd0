"""Reports that wait for the store: the oldest in memory, and what a long outage adds in a local file."""

import os
import threading
from tempfile import TemporaryFile
from typing import IO

MEMORY_BYTES = 16 * 2**20
FILE_BYTES = 4 * 2**30


class WaitingReports:
    """A queue of lines, for any thread. Its methods block on the local disk at most."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES, file_bytes: int = FILE_BYTES) -> None:
        """At most `file_bytes` follow the first `memory_bytes`."""
        self._memory_bytes = memory_bytes
        self._file_bytes = file_bytes
        self._lock = threading.Lock()
        self._memory = bytearray()
        self._file: IO[bytes] | None = None
        """It has what follows the bytes in memory, and no name, so that it ends with this process."""
        self._read = self._written = 0
        """Positions in the file."""

    @property
    def size(self) -> int:
        """How many bytes wait."""
        with self._lock:
            return len(self._memory) + self._written - self._read

    def add(self, lines: bytes) -> bool:
        """Append whole lines; returns False where the file has no room for them, or the disk."""
        with self._lock:
            # Once the file has lines, all later ones follow there, or they would overtake those in it.
            if self._file is None and len(self._memory) + len(lines) <= self._memory_bytes:
                self._memory += lines
                return True
            return self._spill(lines)

    def oldest(self) -> bytes:
        """The oldest lines, about as many as memory may hold; they wait until `discard`. Raises OSError."""
        with self._lock:
            while (end := self._memory.rfind(b"\n") + 1) == 0 and self._refill():
                pass
            return bytes(self._memory[:end])

    def discard(self, size: int) -> None:
        """Remove the oldest bytes, which `oldest` has returned."""
        with self._lock:
            del self._memory[:size]

    def _spill(self, lines: bytes) -> bool:
        if self._written + len(lines) > self._file_bytes:
            return False
        try:
            if self._file is None:
                self._file = TemporaryFile(prefix="sparktrain-reports-", buffering=0)  # noqa: SIM115  # `_refill` closes it
            written = os.pwrite(self._file.fileno(), lines, self._written)
        except OSError:
            return False
        if written < len(lines):  # the disk is full; the next lines replace the part
            return False
        self._written += written
        return True

    def _refill(self) -> bool:
        """Move the first bytes of the file into memory; returns whether there were any."""
        if self._file is None:
            return False
        piece = os.pread(self._file.fileno(), min(self._memory_bytes, self._written - self._read), self._read)
        self._memory += piece
        self._read += len(piece)
        if self._read == self._written:
            self._file.close()
            self._file = None
            self._read = 0
            self._written = 0
        return bool(piece)
