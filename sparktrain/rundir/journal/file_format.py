"""One file of a journal: a header and records, one line each, every line with a checksum.

    <CRC-32 of the JSON, 8 hexadecimal digits> <JSON>

The checksum of a line starts from its number, from 0 on, in place of 0: so no line can be left out, doubled or moved.
The header says how many lines and bytes come after it. So a file that was cut differs from one whose bytes changed: of
the first the beginning can be trusted, of the second nothing but the lines before the damage, and somebody should know.
"""

import math
import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from sparktrain.errors import RunDirectoryError
from sparktrain.state.records import AnyRecord

VERSION = 1
"""Of everything in the folder of a journal."""

BATCH = "batch"
SNAPSHOT = "snapshot"

_NOT_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_ENCODER = msgspec.json.Encoder()
_RECORDS: msgspec.json.Decoder[AnyRecord] = msgspec.json.Decoder(AnyRecord, strict=False)
"""Not strict: that takes "nan" and "inf" for numbers, which JSON does not have."""


class Followed(Struct, frozen=True, omit_defaults=True):
    """The batches of one epoch that count: those from 1 to `number`."""

    epoch: int
    number: int
    records: int | None = None
    """How many records of the last of them count; None when all do."""


class Header(Struct, frozen=True):
    """What a file says of itself."""

    version: int
    sparktrain: str
    """Version of the package that wrote it."""
    kind: str
    epoch: int
    number: int
    records: int
    """How many."""
    size: int
    """Of their lines together, in bytes."""
    follows: tuple[Followed, ...]
    """What counts of the epochs before, oldest first: the driver of this one has read just that, and nothing since."""


class Fault(Struct, frozen=True):
    """Why a file cannot be read to its end."""

    record: int
    """The first that is missing or wrong, counted from 1; 0 for the header."""
    problem: str
    """What is said of it, or of the file."""
    cut: bool = False
    """The end is missing, and all before it is right."""

    def __str__(self) -> str:
        return f"record {self.record} {self.problem}" if self.record else f"it {self.problem}"


class Content(Struct, frozen=True):
    """What can be read of a file."""

    header: Header | None
    records: tuple[AnyRecord, ...] = ()
    """Those before the fault."""
    fault: Fault | None = None


class _Version(Struct, frozen=True):
    """As much of a header as any later version has too."""

    version: int
    sparktrain: str = "a later version"


def encode(header: Header, records: Sequence[AnyRecord]) -> bytes:
    """The file with these records; their number and size are put into its header."""
    lines = b"".join(_line(number, _json(record)) for number, record in enumerate(records, 1))
    return _line(0, _ENCODER.encode(msgspec.structs.replace(header, records=len(records), size=len(lines)))) + lines


def decode(content: bytes, where: str, kind: str, epoch: int, number: int) -> Content:
    """What can be read of a file, which should be this one; `where` names it in messages.

    Raises RunDirectoryError when a later version of sparktrain has written it.
    """
    first, newline, rest = content.partition(b"\n")
    if not newline:
        return Content(None, fault=Fault(0, f"has {len(content)} bytes and no whole header", cut=True))
    payload = _checked(0, first)
    if payload is None:
        return Content(None, fault=Fault(0, "has a header that does not match its checksum"))
    try:
        found = msgspec.json.decode(payload, type=_Version)
        check_version(found.version, found.sparktrain, where)
        header = msgspec.json.decode(payload, type=Header)
    except _NOT_JSON as error:
        return Content(None, fault=Fault(0, f"has a header that is none: {error}"))
    if (header.kind, header.epoch, header.number) != (kind, epoch, number):
        return Content(None, fault=Fault(0, f"has the header of {header.kind} {header.number} of epoch {header.epoch}"))
    return _decode_records(header, rest)


def salvage(content: bytes) -> tuple[AnyRecord, ...]:
    """Every record of a damaged file whose own line is right."""
    records = []
    for number, line in enumerate(content.split(b"\n")):
        payload = _checked(number, line)
        if number and payload is not None:
            with suppress(*_NOT_JSON):
                records.append(_RECORDS.decode(payload))
    return tuple(records)


def check_version(version: int, sparktrain: str, where: str) -> None:
    """Raises RunDirectoryError when a file has a later version than this one."""
    if version > VERSION:
        raise RunDirectoryError(
            f"{where} was written by sparktrain {sparktrain} (format {version}; this sparktrain reads format "
            f"{VERSION}): use that version, or a later one, for this run"
        )


def _decode_records(header: Header, rest: bytes) -> Content:
    *lines, fragment = rest.split(b"\n")
    records: list[AnyRecord] = []
    for number, line in enumerate(lines, 1):
        payload = _checked(number, line)
        if payload is None:
            return Content(header, tuple(records), Fault(number, "does not match its checksum"))
        try:
            records.append(_RECORDS.decode(payload))
        except _NOT_JSON as error:
            return Content(header, tuple(records), Fault(number, f"is no record: {error}"))
    fault = None
    if len(rest) < header.size:
        fault = Fault(len(records) + 1, f"is missing: {header.size - len(rest)} bytes were cut off", cut=True)
    elif len(rest) > header.size or fragment or len(records) != header.records:
        sizes = f"{len(records)} lines in {len(rest)} bytes, and the header says {header.records} in {header.size}"
        fault = Fault(min(len(records), header.records) + 1, f"is wrong: there are {sizes}")
    return Content(header, tuple(records), fault)


def _line(number: int, payload: bytes) -> bytes:
    return b"%08x %b\n" % (zlib.crc32(payload, number), payload)


def _checked(number: int, line: bytes) -> bytes | None:
    """The JSON in a line; None when the checksum before it is another one's."""
    payload = line[9:]
    return payload if line[:9] == b"%08x " % zlib.crc32(payload, number) else None


def _json(record: AnyRecord) -> bytes:
    encoded = _ENCODER.encode(record)
    if b"null" in encoded:  # None is, and so are numbers that are not finite: metrics may be
        encoded = _ENCODER.encode(_with_words(msgspec.to_builtins(record)))
    return encoded


def _with_words(value: Any) -> Any:
    """Numbers that are not finite as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _with_words(each) for key, each in value.items()}
    return [_with_words(each) for each in value] if isinstance(value, list | tuple) else value
