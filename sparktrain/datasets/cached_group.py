"""One group as a file of the host's cache, and as memory mapped from it: only intact bytes become rows.

A file is an Arrow stream of one batch, and behind it a trailer with length and CRC-32C of the stream. Both are in one
file, so that a rename publishes them at once. A wrong bit among numbers is a wrong value, and among the offsets of
strings it makes readers reach outside of the file, which ends the process: the checksum is compared each time that the
file is mapped. That reads the group once, at 6 GB/s, and a process keeps what it has mapped open.
"""

import os
import struct
from pathlib import Path

import pyarrow as pa

from sparktrain.datasets.group_file import checksum

_TRAILER = struct.Struct("<8sQI4x")
_MAGIC = b"STGROUP1"


class CorruptCacheError(Exception):
    """A file of the cache does not hold what was written; `HostCache` fetches the group again."""


def write_cached(path: Path, batch: pa.RecordBatch) -> None:
    """Write a group to `path`, which no other process reads yet. Blocks on the disk. Raises OSError."""
    with pa.OSFile(os.fspath(path), "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with pa.memory_map(os.fspath(path)) as source:  # its pages are in memory still
        stream = source.read_buffer()
        trailer = _TRAILER.pack(_MAGIC, len(stream), checksum(stream))
    with path.open("r+b") as file:  # not "ab": that makes a new file where a cleaner has deleted this one meanwhile
        file.seek(0, os.SEEK_END)
        file.write(trailer)


def map_cached(path: Path) -> pa.RecordBatch:
    """The group in the file at `path`, without copying. Blocks on the disk.

    Raises FileNotFoundError where there is none, and CorruptCacheError for anything but what `write_cached` wrote.
    """
    try:
        with pa.memory_map(os.fspath(path)) as source:
            content = source.read_buffer()
        with pa.ipc.open_stream(_verified(content)) as reader:
            batch = reader.read_next_batch()
        # Offsets that reach outside of the file end the process by SIGSEGV, and each retry of its trial too.
        _check_offsets(batch)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise CorruptCacheError(str(error) or type(error).__name__) from error
    return batch


def _verified(content: pa.Buffer) -> pa.Buffer:
    """The stream of a file. Raises CorruptCacheError where a byte of it differs from those that were written."""
    size = len(content) - _TRAILER.size
    if size < 0:
        raise CorruptCacheError(f"it has {len(content)} bytes")
    magic, length, expected = _TRAILER.unpack(content.slice(size))
    if magic != _MAGIC or length != size:
        raise CorruptCacheError("it does not end with its checksum")
    stream = content.slice(0, size)
    if (actual := checksum(stream)) != expected:
        raise CorruptCacheError(f"its CRC-32C is {actual:08x}, and {expected:08x} was written")
    return stream


def _check_offsets(batch: pa.RecordBatch) -> None:
    """Check that no value reaches outside of the memory of `batch`. Raises ArrowInvalid.

    Strings count as bytes: text that is no UTF-8 is the user's, and harmless here.
    """
    for column in batch.columns:
        plain = column.cast(pa.binary()) if pa.types.is_string(column.type) else column
        plain.validate(full=True)
