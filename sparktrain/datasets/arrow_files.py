"""Arrow IPC files and streams: their record batches are groups, each read by its byte range."""

import struct
from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal

import pyarrow as pa
from msgspec import Struct

from sparktrain.datasets.file_formats import CorruptFileError, GroupedFile, has_dictionary, read_exactly, with_names
from sparktrain.datasets.group_file import checksum
from sparktrain.datasets.manifest import Group
from sparktrain.datasets.values import Lengths
from sparktrain.errors import DataError
from sparktrain.store.base import Store

_MAGIC = b"ARROW1"
_CONTINUATION = b"\xff\xff\xff\xff"
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_WINDOW_BYTES = 64 * 2**10
"""Read at once where a message starts: its header, or several messages."""
_SCHEMA = 1
_DICTIONARY = 2
_BATCH = 3
_BLOCK = struct.Struct("<qi4xq")


class IpcMessage(Struct, frozen=True):
    """One message of a file by its header."""

    kind: int
    offset: int
    size: int
    """With prefix, header and body."""
    rows: int


def open_arrow(store: Store, path: str, size: int) -> "ArrowRows":
    """Read schema and dictionaries of an Arrow file of `size` bytes. Raises CorruptFileError, DataError; blocks."""
    window = _Window(store, path, size)
    start = window.get(0, min(8, size))
    if start.startswith(b"FEA1"):
        raise DataError(f"{store.where(path)} is in version 1 of Feather: write it as Arrow IPC, or Parquet")
    try:
        if start.startswith(_MAGIC):
            return _open_file(window)
        return _open_stream(window)
    except (struct.error, IndexError) as error:
        raise CorruptFileError(f"its structure is corrupt ({error})") from error


class ArrowRows(GroupedFile):
    """An Arrow file or stream by its schema and dictionaries."""

    def __init__(
        self,
        window: "_Window",
        format: Literal["file", "stream"],
        schema: pa.Schema,
        heads: Sequence[tuple[int, bytes]],
        offsets: Sequence[int],
        footer: bytes,
    ) -> None:
        """`heads`: offset and bytes of the messages with schema and dictionaries; `offsets`: of batches, in a file."""
        self.schema = schema
        self.footer = len(footer)
        self.footer_checksum = checksum(footer or heads[0][1])
        self._window = window
        self._format = format
        self._heads = heads
        self._offsets = offsets

    def groups(self, names: Sequence[str]) -> tuple[tuple[Group, ...], Lengths]:
        """See base class. A stream is scanned from header to header."""
        try:
            if self._format == "stream":
                messages = [message for message in _scanned(self._window) if message.kind == _BATCH]
            else:
                messages = [_message(self._window, offset) for offset in self._offsets]
        except (struct.error, IndexError) as error:
            raise CorruptFileError(f"the header of a record batch is corrupt ({error})") from error
        return tuple(Group(message.offset, message.size, message.rows) for message in messages if message.rows), {}

    def nulls(self, names: Sequence[str]) -> dict[str, int]:
        """See base class. Arrow files have no statistics."""
        return {}

    def read(self, group: Group, names: Sequence[str]) -> pa.RecordBatch:
        """See base class. Offsets and texts are validated; Arrow has no checksums of numbers."""
        data = read_exactly(self._window.store, self._window.path, group.offset, group.size)
        # A stream may replace a dictionary, so a batch needs those before it. In a file they may be anywhere.
        heads = [head for offset, head in self._heads if self._format == "file" or offset < group.offset]
        try:
            if len(heads) == 1:
                batch = pa.ipc.read_record_batch(pa.py_buffer(data), self.schema)
            else:
                batch = pa.ipc.open_stream(pa.py_buffer(b"".join([*heads, data, _END]))).read_next_batch()
            roots = [root for root in batch.schema.names if any(f"{name}.".startswith(f"{root}.") for name in names)]
            batch = batch.select(roots)
            batch.validate(full=True)
        except (pa.ArrowException, OSError, StopIteration) as error:
            raise CorruptFileError(str(error) or "the record batch is not there") from error
        return batch

    def number(self, group: Group) -> int | None:
        """See base class. Streams have no numbers."""
        return bisect_left(self._offsets, group.offset) if self._format == "file" else None


class _Window:
    """Reads of a file, in pieces that mostly hold what is read next."""

    def __init__(self, store: Store, path: str, size: int) -> None:
        self.store = store
        self.path = path
        self.size = size
        self._held = (0, b"")

    def get(self, start: int, length: int) -> bytes:
        """`length` bytes from `start`. Raises CorruptFileError where the file is shorter."""
        at, held = self._held
        if not (at <= start and start + length <= at + len(held)):
            if start < 0 or length < 0 or start + length > self.size:
                raise CorruptFileError(f"it ends at byte {self.size:,}, and bytes up to {start + length:,} are needed")
            held = read_exactly(self.store, self.path, start, min(max(length, _WINDOW_BYTES), self.size - start))
            at = start
            self._held = (start, held)
        return held[start - at : start - at + length]


class _FlatTable:
    """A table of FlatBuffers: fields by their numbers."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._fields = at - struct.unpack_from("<i", data, at)[0]

    def _field(self, number: int) -> int | None:
        slot = 4 + 2 * number
        if slot >= struct.unpack_from("<H", self._data, self._fields)[0]:
            return None
        offset = struct.unpack_from("<H", self._data, self._fields + slot)[0]
        return self._at + offset if offset else None

    def number(self, field: int, form: str) -> int:
        """A number; 0 when the field is absent."""
        at = self._field(field)
        return 0 if at is None else int(struct.unpack_from(form, self._data, at)[0])

    def table(self, field: int) -> "_FlatTable":
        """A nested table."""
        at = self._field(field)
        if at is None:
            raise CorruptFileError("a header lacks a field that it must have")
        return _FlatTable(self._data, at + struct.unpack_from("<I", self._data, at)[0])

    def blocks(self, field: int) -> list[tuple[int, int]]:
        """Offset and size of each block in a vector of them."""
        at = self._field(field)
        if at is None:
            return []
        at += struct.unpack_from("<I", self._data, at)[0]
        (count,) = struct.unpack_from("<I", self._data, at)
        # A corrupt count must not decide how much is read.
        if count * _BLOCK.size > len(self._data):
            raise CorruptFileError("its footer is corrupt")
        entries = (_BLOCK.unpack_from(self._data, at + 4 + index * _BLOCK.size) for index in range(count))
        return [(offset, header + body) for offset, header, body in entries]


def _message(window: _Window, offset: int) -> IpcMessage:
    prefix = window.get(offset, 8)
    if not prefix.startswith(_CONTINUATION):
        raise CorruptFileError(f"no Arrow message starts at byte {offset:,}")
    (length,) = struct.unpack_from("<i", prefix, 4)
    header = window.get(offset + 8, length)
    message = _FlatTable(header, struct.unpack_from("<I", header)[0])
    kind = message.number(1, "<B")
    body = message.number(3, "<q")
    size = 8 + length + body
    if body < 0 or offset + size > window.size:
        raise CorruptFileError(f"the message at byte {offset:,} ends at byte {offset + size:,} of {window.size:,}")
    rows = message.table(2).number(0, "<q") if kind == _BATCH else 0
    return IpcMessage(kind, offset, size, rows)


def _scanned(window: _Window) -> list[IpcMessage]:
    """All messages of a stream. Raises CorruptFileError with the groups before the corrupt bytes."""
    messages: list[IpcMessage] = []
    at = 0
    try:
        while at < window.size and window.get(at, min(8, window.size - at)) != _END:
            messages.append(_message(window, at))
            at += messages[-1].size
    except (CorruptFileError, struct.error, IndexError) as error:
        good = tuple(Group(message.offset, message.size, message.rows) for message in messages if message.rows)
        raise CorruptFileError(str(error), good) from error
    return messages


def _open_file(window: _Window) -> ArrowRows:
    end = window.get(window.size - 10, 10)
    if not end.endswith(_MAGIC):
        raise CorruptFileError("it does not end as an Arrow file does, with ARROW1")
    (length,) = struct.unpack_from("<i", end)
    data = window.get(window.size - 10 - length, length)
    footer = _FlatTable(data, struct.unpack_from("<I", data)[0])
    first = _message(window, 8)
    if first.kind != _SCHEMA:
        raise CorruptFileError("its first message is no schema")
    places = [(8, first.size), *footer.blocks(2)]
    heads = [(offset, window.get(offset, size)) for offset, size in places]
    offsets = sorted(offset for offset, _ in footer.blocks(3))
    return ArrowRows(window, "file", _schema(heads[0][1]), heads, offsets, data + end)


def _open_stream(window: _Window) -> ArrowRows:
    first = _message(window, 0)
    if first.kind != _SCHEMA:
        raise CorruptFileError("its first message is no schema")
    heads = [(0, window.get(0, first.size))]
    schema = _schema(heads[0][1])
    if has_dictionary(schema):
        dictionaries = [message for message in _scanned(window) if message.kind == _DICTIONARY]
        heads += [(message.offset, window.get(message.offset, message.size)) for message in dictionaries]
    return ArrowRows(window, "stream", schema, heads, (), b"")


def _schema(message: bytes) -> pa.Schema:
    try:
        return with_names(pa.ipc.read_schema(pa.py_buffer(message)))
    except (pa.ArrowException, OSError) as error:
        raise CorruptFileError(f"its schema is corrupt ({error})") from error
