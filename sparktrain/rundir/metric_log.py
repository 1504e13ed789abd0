"""The reports of a run's trials, step by step: a few gzipped files of JSON lines, written by drivers.

A driver writes rows in blocks. It joins many small blocks into a larger one and deletes them, so that a run of any
length has few files. A block never changes. Its name has the key of its driver and the numbers of its appends, so that
a reader knows which block makes others superfluous.
"""

import gzip
import math
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import uuid4

import msgspec
from msgspec import Struct

from sparktrain.errors import RunDirectoryError
from sparktrain.rundir.layout import BlockName, RunLayout
from sparktrain.store.base import Store
from sparktrain.store.parallel import CheckCancelled, spread

FAN_IN = 32
"""How many blocks of one level are joined into one."""
FULL_BYTES = 4 * 2**20
"""A block of this size is never joined with others."""
READERS = 16
"""How many blocks are read concurrently."""
_LOOKS = 5
"""How often a reader lists the blocks again when one vanishes because it was joined with others."""


class StepRow(Struct, frozen=True):
    """One call of `ctx.report`."""

    trial: int
    generation: int
    rank: int
    step: int
    time: float
    """Seconds since 1970, by the clock of the member's host."""
    metrics: dict[str, float | str]
    """Values; NaN and infinity, which JSON lacks, are text that `float` reads."""


_rows = msgspec.json.Decoder(StepRow)


def step_row(trial: int, generation: int, rank: int, step: int, time: float, metrics: dict[str, float]) -> StepRow:
    """Make a row, with NaN and infinity as text."""
    written = {name: value if math.isfinite(value) else str(value) for name, value in metrics.items()}
    return StepRow(trial, generation, rank, step, time, written)


def lines_of(rows: Iterable[StepRow]) -> bytes:
    """The rows, as blocks have them."""
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


class _Block(NamedTuple):
    name: BlockName
    content: bytes


class MetricLog:
    """Writes the reports of one driver. Its methods block on the store; used by one thread at a time."""

    def __init__(self, store: Store, layout: RunLayout, full_bytes: int = FULL_BYTES) -> None:
        self._store = store
        self._layout = layout.reports
        self._full_bytes = full_bytes
        self._key = uuid4().hex[:8]
        self._number = 0
        self._levels: list[list[_Block]] = []
        """Blocks that may still be joined, by level: those of level n hold `FAN_IN ** n` appends each."""

    def append(self, lines: bytes) -> None:
        """Write rows, as `lines_of` has them, as one block; durable when it returns. Raises OSError."""
        self._number += 1
        self._add(0, BlockName(self._key, self._number, self._number), gzip.compress(lines, 6, mtime=0))

    def _add(self, level: int, name: BlockName, content: bytes) -> None:
        self._store.put_if_absent(self._layout.block(name), content)
        if len(content) >= self._full_bytes:
            return
        if level == len(self._levels):
            self._levels.append([])
        blocks = self._levels[level]
        blocks.append(_Block(name, content))
        if len(blocks) >= FAN_IN or sum(len(block.content) for block in blocks) >= self._full_bytes:
            self._join(level, blocks)

    def _join(self, level: int, blocks: list[_Block]) -> None:
        """Concatenate the blocks: gzip allows that without another compression."""
        self._levels[level] = []
        joined = BlockName(self._key, blocks[0].name.first, blocks[-1].name.last)
        if len(blocks) > 1:
            self._add(level + 1, joined, b"".join(block.content for block in blocks))
            self._store.delete_all([self._layout.block(block.name) for block in blocks])


def block_paths(store: Store, layout: RunLayout) -> tuple[str, ...]:
    """The paths of the blocks that together hold each row once. Blocks on the store. Raises OSError."""
    reports = layout.reports
    found = [name for path in store.list(reports.path) if (name := reports.name_of(path)) is not None]
    found.sort(key=lambda name: (name.key, name.first, -name.last))
    kept: list[BlockName] = []
    for name in found:
        if not kept or kept[-1].key != name.key or name.last > kept[-1].last:
            kept.append(name)
    return tuple(map(reports.block, kept))


def read_blocks(store: Store, layout: RunLayout) -> tuple[tuple[str, ...], list[StepRow]]:
    """Read the current blocks of a run: their paths and rows. A driver may write meanwhile. Blocks on the store.

    Raises RunDirectoryError for a block that is corrupt, OSError from the store.
    """
    for look in range(_LOOKS):
        paths = block_paths(store, layout)
        try:
            contents = spread(lambda path, check_cancelled: _read(store, path, check_cancelled), paths, READERS)
        except FileNotFoundError:  # joined with others since it was listed
            if look == _LOOKS - 1:
                raise
            continue
        return paths, [row for rows in contents for row in rows]
    raise AssertionError("unreachable")


def _read(store: Store, path: str, check_cancelled: CheckCancelled) -> Sequence[StepRow]:
    check_cancelled()
    content = store.read(path)
    try:
        return _rows.decode_lines(gzip.decompress(content))
    except (EOFError, zlib.error, gzip.BadGzipFile, msgspec.MsgspecError) as error:
        raise RunDirectoryError(
            f"{store.where(path)} is corrupt ({error}): put a copy back, or delete it to read the other reports"
        ) from error
