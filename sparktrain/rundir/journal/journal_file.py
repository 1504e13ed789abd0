"""One file of a journal: a header and records, one line each, every line with a checksum.

    <CRC-32 of the JSON, 8 hexadecimal digits> <JSON>

The initial value of a line's checksum is its number, counted from 0, so that no line can be omitted, repeated or moved.
The header has the number of lines and bytes that follow, which distinguishes a truncated file from one with changed
bytes: a reader trusts the start of the first, and reports the second as corrupt.
"""

import math
import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from sparktrain.base.decoding import from_json, json_decoder
from sparktrain.errors import RunDirectoryError
from sparktrain.rundir.restart_fields import stored, with_how
from sparktrain.state.records import AnyRecord, GangRestarted, LossRecorded, MemberRestarted, TrialPaused

VERSION = 1
"""Format version of all files of a journal."""

BATCH = "batch"
SNAPSHOT = "snapshot"

_NOT_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_ENCODER = msgspec.json.Encoder()
_RECORDS: msgspec.json.Decoder[AnyRecord] = json_decoder(AnyRecord, strict=False)
"""Not strict, so that it accepts "nan" and "inf", for which JSON has no numbers."""


class Followed(Struct, frozen=True, omit_defaults=True):
    """The batches of one term that count: those from 1 to `number`."""

    term: int
    number: int
    records: int | None = None
    """How many records of the last batch count; None for all."""


class Header(Struct, frozen=True):
    """The first line of a file: its identity, and what follows."""

    version: int
    sparktrain: str
    """Version of the sparktrain that wrote it."""
    kind: str
    term: int
    number: int
    records: int
    """Number of records."""
    size: int
    """Size of all their lines, in bytes."""
    follows: tuple[Followed, ...]
    """The batches of earlier terms that count, oldest first: exactly those that the driver of this term has read."""


class Fault(Struct, frozen=True):
    """Why a file cannot be read to its end."""

    record: int
    """The first missing or wrong record, counted from 1; 0 for the header."""
    problem: str
    """The predicate of a sentence about the record, or about the file."""
    cut: bool = False
    """Whether only the end is missing."""

    def __str__(self) -> str:
        return f"record {self.record} {self.problem}" if self.record else f"it {self.problem}"


class Content(Struct, frozen=True):
    """The readable part of a file."""

    header: Header | None
    records: tuple[AnyRecord, ...] = ()
    """The records before the fault."""
    fault: Fault | None = None


class _Version(Struct, frozen=True):
    """The part of a header that every later version has too."""

    version: int
    sparktrain: str = "a later version"


def encode(header: Header, records: Sequence[AnyRecord]) -> bytes:
    """Encode a file with these records; sets their number and size in its header."""
    lines = b"".join(_line(number, _json(record)) for number, record in enumerate(records, 1))
    return _line(0, _ENCODER.encode(msgspec.structs.replace(header, records=len(records), size=len(lines)))) + lines


def decode(content: bytes, where: str, kind: str, term: int, number: int) -> Content:
    """Decode the readable part of a file and check that it is the expected one; `where` names it in messages.

    Raises RunDirectoryError when a later version of sparktrain has written it.
    """
    first, newline, body = content.partition(b"\n")
    if not newline:
        return Content(None, fault=Fault(0, f"has {len(content)} bytes and no complete header", cut=True))
    payload = _checked(0, first)
    if payload is None:
        return Content(None, fault=Fault(0, "has a header that does not match its checksum"))
    try:
        stamp = from_json(payload, _Version)
        check_version(stamp.version, stamp.sparktrain, where)
        header = from_json(payload, Header)
    except _NOT_JSON as error:
        return Content(None, fault=Fault(0, f"has an invalid header: {error}"))
    if (header.kind, header.term, header.number) != (kind, term, number):
        return Content(None, fault=Fault(0, f"has the header of {header.kind} {header.number} of term {header.term}"))
    return _decode_records(header, body)


def salvage(content: bytes) -> tuple[AnyRecord, ...]:
    """Every record of a corrupt file with an intact line."""
    records = []
    for number, line in enumerate(content.split(b"\n")):
        payload = _checked(number, line)
        if number and payload is not None:
            with suppress(*_NOT_JSON):
                records.append(_record(payload))
    return tuple(records)


def check_version(version: int, sparktrain: str, where: str) -> None:
    """Raise RunDirectoryError when a file has a later format version than this sparktrain."""
    if version > VERSION:
        raise RunDirectoryError(
            f"{where} was written by sparktrain {sparktrain} (format {version}; this sparktrain reads format "
            f"{VERSION}): use that version, or a later one, for this run"
        )


def _decode_records(header: Header, body: bytes) -> Content:
    *lines, fragment = body.split(b"\n")
    records: list[AnyRecord] = []
    for number, line in enumerate(lines, 1):
        payload = _checked(number, line)
        if payload is None:
            return Content(header, tuple(records), Fault(number, "does not match its checksum"))
        try:
            records.append(_record(payload))
        except _NOT_JSON as error:
            return Content(header, tuple(records), Fault(number, f"is not a record: {error}"))
    fault = None
    if len(body) < header.size:
        fault = Fault(len(records) + 1, f"is missing: {header.size - len(body)} bytes were cut off", cut=True)
    elif len(body) > header.size or fragment or len(records) != header.records:
        sizes = f"{len(records)} lines in {len(body)} bytes, and the header has {header.records} in {header.size}"
        fault = Fault(min(len(records), header.records) + 1, f"is wrong: there are {sizes}")
    return Content(header, tuple(records), fault)


def _line(number: int, payload: bytes) -> bytes:
    # The checksum starts from the number of the line, so that no line can be left out, repeated or moved.
    return b"%08x %b\n" % (zlib.crc32(payload, number), payload)


def _checked(number: int, line: bytes) -> bytes | None:
    """The JSON in a line; None when its checksum does not match."""
    payload = line[9:]
    return payload if line[:9] == b"%08x " % zlib.crc32(payload, number) else None


def _record(payload: bytes) -> AnyRecord:
    if b'"restart":{' in payload:
        fields = from_json(payload, dict[str, Any])
        if "restart" in fields:
            payload = _ENCODER.encode(fields | {"restart": with_how(fields["restart"])})
    return _RECORDS.decode(payload)


def _json(record: AnyRecord) -> bytes:
    if isinstance(record, GangRestarted | LossRecorded | MemberRestarted | TrialPaused):
        fields = msgspec.to_builtins(record) | {"restart": stored(record.restart)}
        return _ENCODER.encode(_with_text(fields))
    encoded = _ENCODER.encode(record)
    if b"null" in encoded:  # for None, and for metrics that are not finite
        encoded = _ENCODER.encode(_with_text(msgspec.to_builtins(record)))
    return encoded


def _with_text(value: Any) -> Any:
    """Replace numbers that are not finite by text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _with_text(child) for key, child in value.items()}
    return [_with_text(child) for child in value] if isinstance(value, list | tuple) else value
