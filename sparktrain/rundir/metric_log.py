"""The reports of a run's trials, step by step: a few Parquet files that are one table, written by drivers.

A driver writes rows in parts. It joins many small parts into a larger one and deletes them, so that a run of any length
has few files. A part never changes. Its name has the key of its driver and the numbers of its appends, so that a reader
knows which part makes others superfluous. A program that reads the folder as a whole does not know that: it sees rows
twice between the moment in which a joined part appears and the one in which the others are deleted. A driver that dies
there leaves both, until the next driver, or `sparktrain gc`, deletes what is superfluous.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from sparktrain.errors import RunDirectoryError
from sparktrain.rundir.layout import BlockName, ReportLayout, RunLayout
from sparktrain.rundir.report_parts import (
    CorruptPartError,
    StepRow,
    joined_tables,
    part_of,
    table_of_block,
    table_of_lines,
    table_of_part,
)
from sparktrain.store.base import Store
from sparktrain.store.parallel import CheckCancelled, spread

if TYPE_CHECKING:
    import pyarrow as pa

FAN_IN = 32
"""How many parts of one level are joined into one."""
FULL_BYTES = 4 * 2**20
"""A part of this size is never joined with others."""
READERS = 16
"""How many parts are read concurrently."""
_LOOKS = 5
"""How often a reader lists the parts again when one vanishes because it was joined with others."""


class _Part(NamedTuple):
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
        self._levels: list[list[_Part]] = []
        """Parts that may still be joined, by level: those of level n hold `FAN_IN ** n` appends each."""
        self._unsure: list[str] = []
        """Parts that may exist, although the store failed to write them."""
        self._clean = False
        """No part that another one makes superfluous is left."""

    def append(self, lines: bytes) -> None:
        """Write rows, as `lines_of` has them, as one part; durable when it returns.

        Raises OSError; the next call must then have these rows again, and may have more of them. That joining small
        parts fails is no error: a later call tries again.
        """
        self._number += 1
        part = _Part(BlockName(self._key, self._number, self._number), part_of(table_of_lines(lines)))
        path = self._layout.block(part.name)
        try:
            self._store.put_if_absent(path, part.content)
        except OSError:
            # The next call has these rows in a part of another number: with this one they would be there twice.
            self._unsure.append(path)
            raise
        self._keep(0, part)
        with suppress(OSError):
            self._tidy()

    def _keep(self, level: int, part: _Part) -> None:
        """Join the part with others later, unless it is full."""
        if len(part.content) < self._full_bytes:
            self._levels.extend([] for _ in range(level + 1 - len(self._levels)))
            self._levels[level].append(part)

    def _tidy(self) -> None:
        if self._unsure:
            self._store.delete_all(self._unsure)
            self._unsure = []
        if not self._clean:
            self._store.delete_all(superseded_paths(self._store, self._layout))
            self._clean = True
        level = 0
        while level < len(self._levels):
            parts = self._levels[level]
            if len(parts) >= FAN_IN or sum(len(part.content) for part in parts) >= self._full_bytes:
                self._join(level, parts)
            level += 1

    def _join(self, level: int, parts: list[_Part]) -> None:
        """Write one part with the rows of these, then delete them."""
        if len(parts) > 1:
            name = BlockName(self._key, parts[0].name.first, parts[-1].name.last)
            joined = _Part(name, part_of(joined_tables([table_of_part(part.content) for part in parts])))
            self._clean = False  # until all of this has succeeded
            # First the new part, then the deletions: whenever this ends, no row is missing.
            self._store.put_if_absent(self._layout.block(name), joined.content)
            self._keep(level + 1, joined)
        self._levels[level] = []
        if len(parts) > 1:
            self._store.delete_all([self._layout.block(part.name) for part in parts])
            self._clean = True


def superseded_paths(store: Store, reports: ReportLayout) -> tuple[str, ...]:
    """The paths of parts with rows that another part holds too. Blocks on the store. Raises OSError."""
    return _divided(store, reports)[1]


def block_paths(store: Store, layout: RunLayout) -> tuple[str, ...]:
    """The paths of the parts that together hold each row once. Blocks on the store. Raises OSError."""
    return _divided(store, layout.reports)[0]


def read_table(store: Store, layout: RunLayout, *, counting: bool = False) -> "pa.Table":
    """The reports of a run as one table of `report_parts.COLUMNS`: one row for each metric of a report.

    With `counting`, only the rows that count, sorted by trial, step and rank: `report_table.current`. A driver may
    write meanwhile. Blocks on the store. Raises RunDirectoryError for a part that is corrupt, OSError from the store.
    """
    from sparktrain.rundir.report_table import current

    table = read_parts(store, layout)[1]
    return current(table) if counting else table


def read_parts(store: Store, layout: RunLayout) -> tuple[tuple[str, ...], "pa.Table"]:
    """The paths of the current parts of a run, and all of their rows: as `read_table`."""
    for look in range(_LOOKS):
        paths = block_paths(store, layout)
        try:
            tables = spread(lambda path, check_cancelled: _read(store, layout, path, check_cancelled), paths, READERS)
        except FileNotFoundError:  # joined with others since it was listed
            if look == _LOOKS - 1:
                raise
            continue
        return paths, joined_tables(tables)
    raise AssertionError("unreachable")


def read_blocks(store: Store, layout: RunLayout) -> tuple[tuple[str, ...], list[StepRow]]:
    """The paths of the current parts of a run, and their reports as objects, for few of them: as `read_table`."""
    from sparktrain.rundir.report_table import rows_of

    paths, table = read_parts(store, layout)
    return paths, rows_of(table)


def check_part(store: Store, layout: RunLayout, path: str) -> None:
    """Read one part. Blocks on the store. Raises RunDirectoryError where it is corrupt, and OSError."""
    _read(store, layout, path, lambda: None)


def _divided(store: Store, reports: ReportLayout) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The paths of the parts that hold each row once, and of the others."""
    names = [name for path in store.list(reports.path) if (name := reports.name_of(path)) is not None]
    # Of the parts that start with the same append, the longest comes first, so that one pass finds what it covers.
    names.sort(key=lambda name: (name.key, name.first, -name.last))
    kept_names: list[BlockName] = []
    superseded: list[BlockName] = []
    for name in names:
        if not kept_names or kept_names[-1].key != name.key or name.last > kept_names[-1].last:
            kept_names.append(name)
        else:
            superseded.append(name)
    return tuple(map(reports.block, kept_names)), tuple(map(reports.block, superseded))


def _read(store: Store, layout: RunLayout, path: str, check_cancelled: CheckCancelled) -> "pa.Table":
    check_cancelled()
    content = store.read(path)
    name = layout.reports.name_of(path)
    try:
        return table_of_block(content) if name is not None and name.old else table_of_part(content)
    except CorruptPartError as error:
        raise RunDirectoryError(
            f"{store.where(path)} is corrupt ({error}): put a copy back, or delete it to read the other reports"
        ) from error
