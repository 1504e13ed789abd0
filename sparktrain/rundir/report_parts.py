"""The formats of reports: rows that wait in a driver as JSON lines, Parquet parts, and the blocks of older versions.

A part has one row for each metric of a report, or one without name and value where a report has no metric.
"""

import gzip
import math
import zlib
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from sparktrain.base.decoding import json_decoder

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

COLUMNS = ("trial", "generation", "rank", "step", "time", "name", "value")
INDEX = COLUMNS[:5]
"""The columns of a report, whatever its metrics are."""
_COMPRESSION_LEVEL = 3
_DELTAS = dict.fromkeys(("trial", "generation", "rank", "step", "time"), "DELTA_BINARY_PACKED")
_WITHOUT_METRICS: Mapping[Any, float] = {None: math.nan}
_CHECKSUM = b"sparktrain.crc32c"
_LATEST_US = 2**62


class StepRow(Struct, frozen=True):
    """One call of `ctx.report`."""

    trial: int
    generation: int
    rank: int
    step: int
    time: float
    """Seconds since 1970, by the clock of the member's host; a part keeps microseconds."""
    metrics: dict[str, float | str]
    """Values; in JSON lines NaN and infinity, which JSON lacks, are text that `float` reads."""


class CorruptPartError(Exception):
    """The content of a part is none of a part."""


_rows = json_decoder(StepRow)


def step_row(trial: int, generation: int, rank: int, step: int, time: float, metrics: dict[str, float]) -> StepRow:
    """Make a row, with NaN and infinity as text."""
    written = {name: value if math.isfinite(value) else str(value) for name, value in metrics.items()}
    return StepRow(trial, generation, rank, step, time, written)


def lines_of(rows: Iterable[StepRow]) -> bytes:
    """The rows, as they wait in a driver."""
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def table_of_lines(lines: bytes) -> "pa.Table":
    """The table of `COLUMNS` that `lines_of` has written as lines."""
    import numpy as np
    import pyarrow as pa

    rows = _rows.decode_lines(lines)
    metrics = [row.metrics or _WITHOUT_METRICS for row in rows]
    lengths = np.fromiter(map(len, metrics), np.int64, len(rows))
    names = pa.array(list(chain.from_iterable(metrics)), pa.string())
    values = np.fromiter(map(float, chain.from_iterable(report.values() for report in metrics)), np.float64, len(names))

    def repeated(cells: Iterable[int], kind: type[np.generic]) -> "NDArray[np.generic]":
        return np.repeat(np.fromiter(cells, kind, len(rows)), lengths)

    columns = [
        repeated((row.trial for row in rows), np.int32),
        repeated((row.generation for row in rows), np.int32),
        repeated((row.rank for row in rows), np.int32),
        repeated((row.step for row in rows), np.int64),
        np.repeat(_microseconds(np.fromiter((row.time for row in rows), np.float64, len(rows))), lengths),
        names.dictionary_encode(),
        pa.array(values, mask=names.is_null().to_numpy(zero_copy_only=False) if names.null_count else None),
    ]
    return pa.Table.from_arrays([pa.array(column) for column in columns], names=list(COLUMNS)).cast(schema())


def schema() -> "pa.Schema":
    """The types of `COLUMNS` in memory. In a file `name` is text, with a dictionary of its own encoding."""
    import pyarrow as pa

    types = (pa.int32(), pa.int32(), pa.int32(), pa.int64(), pa.timestamp("us", "UTC"))
    return pa.schema(list(zip(COLUMNS, (*types, pa.dictionary(pa.int32(), pa.string()), pa.float64()), strict=True)))


def part_of(table: "pa.Table") -> bytes:
    """The Parquet file with these rows, and a checksum of them in its footer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        table.schema,
        # With these encodings a million reports take 14.3 MiB, where gzipped JSON lines took 25.6 MiB.
        compression="zstd",
        compression_level=_COMPRESSION_LEVEL,
        use_dictionary=["name"],
        column_encoding=_DELTAS,
        store_schema=False,
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_CHECKSUM: _checksum(table)})
    return cast(bytes, sink.getvalue().to_pybytes())


def table_of_part(content: bytes) -> "pa.Table":
    """The rows of a Parquet part. Raises CorruptPartError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=["name"])
        table = file.read(use_threads=False)
        table.validate(full=True)
        if not table.schema.equals(schema()):
            raise ValueError(f"it has other columns than {', '.join(COLUMNS)}, or other types")
        is_intact = (file.metadata.metadata or {}).get(_CHECKSUM) == _checksum(table)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise CorruptPartError(" ".join(str(error).split()) or type(error).__name__) from error
    if not is_intact:
        raise CorruptPartError("its rows differ from their checksum")
    return cast("pa.Table", table)


def table_of_block(content: bytes) -> "pa.Table":
    """The rows of a block of gzipped JSON lines, which older versions have written. Raises CorruptPartError."""
    try:
        return table_of_lines(gzip.decompress(content))
    except (EOFError, zlib.error, gzip.BadGzipFile, msgspec.MsgspecError) as error:
        raise CorruptPartError(str(error)) from error


def joined_tables(tables: "list[pa.Table]") -> "pa.Table":
    """All rows, with one dictionary of names."""
    import pyarrow as pa

    return pa.concat_tables(tables).unify_dictionaries().combine_chunks() if tables else schema().empty_table()


def _checksum(table: "pa.Table") -> bytes:
    """The CRC-32C of all cells, column after column."""
    import google_crc32c

    crc = 0
    for name in COLUMNS:
        for chunk in table[name].chunks:
            crc = google_crc32c.extend(crc, _cells(chunk).tobytes())
    return b"%08x" % crc


def _cells(chunk: "pa.Array") -> "NDArray[np.generic]":
    """The cells as numbers: text as its own CRC-32C, whatever its place in a dictionary is."""
    import google_crc32c
    import numpy as np
    import pyarrow as pa

    if pa.types.is_dictionary(chunk.type):
        names = np.array([0, *(google_crc32c.value(name.encode()) for name in chunk.dictionary.to_pylist())], np.uint32)
        return cast("NDArray[np.generic]", names[chunk.indices.fill_null(-1).to_numpy() + 1])
    plain = chunk.cast(pa.int64()) if pa.types.is_timestamp(chunk.type) else chunk
    return cast("NDArray[np.generic]", plain.fill_null(math.nan).to_numpy() if plain.null_count else plain.to_numpy())


def _microseconds(seconds: "NDArray[np.float64]") -> "NDArray[np.int64]":
    """Whole microseconds; 0 for what is no time."""
    import numpy as np

    microseconds = np.nan_to_num(seconds * 1e6, nan=0.0, posinf=0.0, neginf=0.0)
    return np.rint(np.clip(microseconds, -_LATEST_US, _LATEST_US)).astype(np.int64)
