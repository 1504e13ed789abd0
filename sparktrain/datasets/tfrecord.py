"""TFRecord files: framing with masked CRC-32C, written, indexed and read without TensorFlow."""

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparktrain.datasets.file_formats import CorruptFileError, GroupedFile, read_exactly
from sparktrain.datasets.group_file import MOST_BYTES, MOST_ROWS
from sparktrain.datasets.manifest import Group
from sparktrain.datasets.tf_examples import example_schema, examples
from sparktrain.datasets.values import Lengths
from sparktrain.errors import DataError
from sparktrain.store.base import NewFile, Store

HEAD_BYTES = 12
"""Of a record: length and its checksum."""
RECORD = "record"
"""The column with the bytes of each record."""
MOST_DECOMPRESSED = 2**30
"""The most bytes of a compressed file, decompressed: it is one group."""

_FRAME_BYTES = 16
_LENGTH = struct.Struct("<Q")
_HEAD = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_MASK = 0xA282EAD8
_WBITS = {"gzip": 31, "zlib": 15}
_SHORT_RUN = 4
_SEVERAL_RUNS = 64


def masked(checksum: int) -> int:
    """A CRC-32C as TFRecord files have it."""
    return (((checksum >> 15) | (checksum << 17)) + _MASK) & 0xFFFFFFFF


def framed(record: bytes) -> bytes:
    """A record with length and checksums."""
    length = _LENGTH.pack(len(record))
    ends = masked(google_crc32c.value(length)), masked(google_crc32c.value(record))
    return b"".join((length, _CHECKSUM.pack(ends[0]), record, _CHECKSUM.pack(ends[1])))


class TfRecordWriter:
    """Writes records into a file of a store. One thread uses it. Raises what `NewFile.write` raises."""

    def __init__(self, file: NewFile, compression: str = "") -> None:
        """`compression`: empty, `gzip` or `zlib`."""
        self._file = file
        self._compressor = zlib.compressobj(wbits=_WBITS[compression]) if compression else None

    def write(self, records: Sequence[bytes]) -> None:
        """Write some records. Blocks on the store."""
        data = b"".join(map(framed, records))
        self._put(self._compressor.compress(data) if self._compressor else data)

    def finish(self) -> None:
        """Write what is still held; the caller publishes the file."""
        if self._compressor:
            self._put(self._compressor.flush())

    def _put(self, data: bytes) -> None:
        if data:
            self._file.write(data)


def compression_of(head: bytes) -> str:
    """The compression of a file by its first 12 bytes: empty for plain records."""
    # First the checksum of a length: plain records may look like any compression.
    if len(head) < HEAD_BYTES or _is_head(head):
        return ""
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    # The first two bytes of zlib are a multiple of 31 (RFC 1950).
    return "zlib" if head[0] == 0x78 and int.from_bytes(head[:2], "big") % 31 == 0 else ""


def records_of(store: Store, path: str) -> Iterator[list[bytes]]:
    """All records of a file, some at a time, each verified. Blocks on the store.

    Raises CorruptFileError at the first record that is corrupt or cut, OSError, and DataError for a compressed file
    above `MOST_DECOMPRESSED`.
    """
    pieces = store.pieces(path)
    if compression := compression_of(store.read_range(path, 0, HEAD_BYTES)):
        pieces = _decompressed(pieces, compression, store.where(path))
    tail = b""
    at = 0
    for piece in pieces:
        data = tail + piece
        starts, lengths, end = frames(data, at)
        check_records(data, starts, lengths, at)
        yield [data[start:stop] for start, stop in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)]
        tail = data[end:]
        at = at + end
    if tail:
        raise CorruptFileError(f"the record at byte {at:,} is cut")


class TfRecordRows(GroupedFile):
    """A TFRecord file. Its groups have at most 65,536 records and about 16 MiB; a compressed file is one group."""

    footer = 0
    footer_checksum = None

    def __init__(self, store: Store, path: str, size: int, compression: str, features: Mapping[str, str]) -> None:
        """See `Manifest.compression` and `Manifest.features`. Reads nothing."""
        self.schema = example_schema(features) if features else pa.schema([(RECORD, pa.binary())])
        self._store = store
        self._path = path
        self._size = size
        self._compression = compression
        self._features = features

    def groups(self, names: Sequence[str]) -> tuple[tuple[Group, ...], Lengths]:
        """See base class. Reads the whole file, in pieces."""
        index = _Index()
        # The format has no index, and a range for the head of each record is slower than one pass over all.
        for piece in self._pieces():
            index.add(piece)
        index.finish()
        lengths: Lengths = {} if self._features or not index.rows else {RECORD: ((index.least, index.most),)}
        if self._compression:
            return ((Group(0, self._size, index.rows),) if index.rows else ()), lengths
        return tuple(index.groups), lengths

    def nulls(self, names: Sequence[str]) -> dict[str, int]:
        """See base class. Records have no statistics."""
        return {}

    def read(self, group: Group, names: Sequence[str]) -> pa.RecordBatch:
        """See base class. The checksum of each record is checked."""
        if self._compression:
            data = b"".join(self._pieces())
        else:
            data = read_exactly(self._store, self._path, group.offset, group.size)
        starts, lengths, end = frames(data, group.offset)
        if end != len(data):
            raise CorruptFileError(f"the record at byte {group.offset + end:,} is cut")
        check_records(data, starts, lengths, 0 if self._compression else group.offset)
        records = gathered(data, starts, lengths)
        if not self._features:
            return pa.RecordBatch.from_arrays([records], [RECORD])
        return examples(records, {name: self._features[name] for name in names})

    def number(self, group: Group) -> int | None:
        """See base class. Records have no groups of their own."""
        return None

    def _pieces(self) -> Iterator[bytes]:
        """The content, decompressed."""
        pieces = self._store.pieces(self._path)
        return _decompressed(pieces, self._compression, self._store.where(self._path)) if self._compression else pieces


class _Index:
    """Groups of records, from the pieces of a file."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.rows = 0
        self.least = 2**62
        self.most = 0
        self._incomplete = b""
        self._at = 0
        """Of `_incomplete` in the file."""

    def add(self, piece: bytes) -> None:
        """Index the records that are complete by now. Raises CorruptFileError."""
        data = self._incomplete + piece
        try:
            starts, lengths, end = frames(data, self._at)
        except CorruptFileError as error:
            raise CorruptFileError(str(error), tuple(self.groups)) from error
        if len(lengths):
            self.rows += len(lengths)
            self.least = min(self.least, int(lengths.min()))
            self.most = max(self.most, int(lengths.max()))
            self._group(starts + lengths + (self._at + 4))
        self._incomplete = data[end:]
        self._at = self._at + end

    def finish(self) -> None:
        """Check that the file ends with a record. Raises CorruptFileError."""
        if self._incomplete:
            raise CorruptFileError(f"the record at byte {self._at:,} is cut", tuple(self.groups))

    def _group(self, ends: NDArray[np.int64]) -> None:
        """Add records that end at these bytes of the file to the last group, or to new ones."""
        position = 0
        while position < len(ends):
            last = self.groups[-1] if self.groups else Group(0, 0, 0)
            room = int(np.searchsorted(ends, last.offset + MOST_BYTES, "right")) - position
            take = min(room, MOST_ROWS - last.rows, len(ends) - position)
            if take <= 0 and last.rows:
                self.groups.append(Group(last.offset + last.size, 0, 0))
                continue
            take = max(1, take)
            end = int(ends[position + take - 1])
            self.groups[-1:] = [Group(last.offset, end - last.offset, last.rows + take)]
            position += take


def frames(data: bytes, at: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Where the complete records in `data` start, how long they are, and where the next one would start.

    Checks the checksums of lengths. `at` is the place of `data` in the file, for messages. Raises CorruptFileError.
    """
    place = 0
    end = len(data)
    runs: list[tuple[int, int, int]] = []
    checked: set[bytes] = set()
    previous = b""
    while place + HEAD_BYTES <= end:
        head = data[place : place + HEAD_BYTES]
        # Records of one length share one head, and most files have few lengths: each head is checked once.
        if head not in checked:
            if not _is_head(head):
                raise CorruptFileError(f"the length of the record at byte {at + place:,} fails its checksum")
            checked.add(head)
        length = _LENGTH.unpack_from(head)[0]
        step = length + _FRAME_BYTES
        room = (end - place) // step
        if not room:
            break
        run = _run(data, place, step, head, room) if head == previous else 1
        runs.append((place, length, run))
        previous = head
        place += run * step
    if not runs:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), 0
    first, size, counts = (np.array(column, np.int64) for column in zip(*runs, strict=True))
    lengths = np.repeat(size, counts)
    within = np.arange(len(lengths)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(first, counts) + within * (lengths + _FRAME_BYTES) + HEAD_BYTES, lengths, place


def check_records(data: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64], at: int) -> None:
    """Check the checksum of each record. Raises CorruptFileError with the first wrong one."""
    value = google_crc32c.value
    ends = starts + lengths
    bounds = zip(starts.tolist(), ends.tolist(), strict=True)
    checksums = np.fromiter((value(data[start:end]) for start, end in bounds), np.uint32, len(starts))
    expected = ((checksums >> np.uint32(15)) | (checksums << np.uint32(17))) + np.uint32(_MASK)
    raw = np.frombuffer(data, np.uint8)
    written = raw[ends[:, np.newaxis] + np.arange(4)].view("<u4").reshape(-1)
    wrong = np.flatnonzero(expected != written)
    if len(wrong):
        place = at + int(starts[wrong[0]]) - HEAD_BYTES
        raise CorruptFileError(
            f"the record at byte {place:,} fails its checksum"
            + (f", and {len(wrong) - 1:,} more do" if len(wrong) > 1 else "")
        )


def gathered(data: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> pa.Array:
    """The records one after the other, without frames: an array of the type binary."""
    if len(data) > 2**31 - 1:
        raise DataError(f"{len(data):,} bytes of records are more than one group may have: split the file")
    bounds = np.stack([starts, starts + lengths], axis=1).astype(np.int32).reshape(-1)
    # Records and what lies between them, in turns: Arrow gathers the even ones.
    pieces = pa.BinaryArray.from_buffers(
        pa.binary(), max(0, len(bounds) - 1), [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    return pieces.take(pa.array(np.arange(0, len(bounds), 2)))


def _is_head(head: bytes) -> bool:
    length, checksum = _HEAD.unpack(head)
    return bool(masked(google_crc32c.value(head[:8])) == checksum) and length < 2**62


def _run(data: bytes, place: int, step: int, head: bytes, room: int) -> int:
    """How many records from `place` on have the same head, one after the other."""
    count = _count_equal_heads(data, place, step, head, min(room, _SHORT_RUN))
    for limit in (_SEVERAL_RUNS, room):
        if count < min(room, limit) and count in (_SHORT_RUN, _SEVERAL_RUNS):
            count = _count_equal_heads(data, place, step, head, min(room, limit))
    return count


def _count_equal_heads(data: bytes, place: int, step: int, head: bytes, count: int) -> int:
    """How many of `count` places, from the first, have this head."""
    heads: NDArray[Any] = np.ndarray((count, HEAD_BYTES), np.uint8, data, place, (step, 1))
    mismatches = np.flatnonzero((heads != np.frombuffer(head, np.uint8)).any(axis=1))
    return int(mismatches[0]) if len(mismatches) else count


def _decompressed(pieces: Iterator[bytes], compression: str, where: str) -> Iterator[bytes]:
    """The content of compressed pieces. Raises CorruptFileError, and DataError for more than a group may have."""
    machine = zlib.decompressobj(wbits=_WBITS[compression])
    total = 0
    try:
        for piece in pieces:
            while piece:
                if machine.eof:
                    machine = zlib.decompressobj(wbits=_WBITS[compression])  # gzip files may be joined
                data = machine.decompress(piece, MOST_DECOMPRESSED - total + 1)
                piece = machine.unused_data if machine.eof else machine.unconsumed_tail
                total += len(data)
                if total > MOST_DECOMPRESSED:
                    raise DataError(
                        f"{where} has more than {MOST_DECOMPRESSED:,} bytes decompressed, and a compressed file is "
                        "read as a whole: split it, or write it without compression"
                    )
                yield data
    except zlib.error as error:
        raise CorruptFileError(f"it cannot be decompressed by {compression} ({error})") from error
    if not machine.eof:
        raise CorruptFileError("its compressed content is cut")
