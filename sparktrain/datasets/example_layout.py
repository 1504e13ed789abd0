"""The bytes of `tf.train.Example`: fields of protobuf messages, and records that differ in values alone. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = {1: "bytes", 2: "float32", 3: "int64"}
"""Fields of `tf.train.Feature`."""

Span = tuple[str, int, int]
"""Kind of a feature, and where its only value or packed values start and end."""

_VARINT = 0
_FIXED64 = 1
_DELIMITED = 2
_FIXED32 = 5
_FEW_BYTES = 40


def fields_of(data: bytes) -> list[tuple[int, bytes]]:
    """Number and content of each field of a message, in order. Varints and fixed numbers as their bytes.

    Raises ValueError and IndexError for bytes that are none.
    """
    return [(number, data[start:stop]) for number, start, stop in _places(data, 0, len(data))]


def layout_of(record: bytes) -> dict[bytes, Span] | None:
    """Where the values of each feature of an example are; None when they are not in one piece each."""
    spans: dict[bytes, Span] = {}
    for number, start, stop in _places(record, 0, len(record)):
        for field_number, entry, end in _places(record, start, stop) if number == 1 else ():
            pair = {part: (at, to) for part, at, to in _places(record, entry, end)} if field_number == 1 else {}
            if not pair.keys() >= {1, 2}:
                return None
            name = record[slice(*pair[1])]
            span = _span(record, *pair[2])
            if span is None or name in spans:
                return None
            spans[name] = span
    return spans


def with_layout(matrix: NDArray[np.uint8], first: bytes, spans: Mapping[bytes, Span]) -> NDArray[np.bool_]:
    """Which rows of `matrix`, records as long as `first`, have its layout, given by `spans`."""
    mask = np.full(len(first), 0xFF, np.uint8)
    for kind, start, stop in spans.values():
        mask[start:stop] = 0x80 if kind == "int64" else 0  # which bytes end a number is layout
    places = np.flatnonzero(mask)
    expected = np.frombuffer(first, np.uint8)[places] & mask[places]
    matches: NDArray[np.bool_] = ((matrix[:, places] & mask[places]) == expected).all(axis=1)
    return matches


def values_at(matrix: NDArray[np.uint8], first: bytes, span: Span) -> NDArray[Any]:
    """The values of a feature in all rows, which have the layout of `first`: shape (rows, values)."""
    kind, start, stop = span
    raw = matrix[:, start:stop]
    if kind == "bytes":
        return raw
    if kind == "float32":
        return np.ascontiguousarray(raw).view("<f4")
    lasts = np.flatnonzero(np.frombuffer(first, np.uint8)[start:stop] < 0x80)
    starts = np.concatenate([[0], lasts[:-1] + 1])
    shifts = (np.arange(stop - start) - np.repeat(starts, lasts - starts + 1)).astype(np.uint64) * np.uint64(7)
    return np.add.reduceat((raw & 0x7F).astype(np.uint64) << shifts, starts, axis=1).view(np.int64)


def _span(record: bytes, start: int, stop: int) -> Span | None:
    lists = _places(record, start, stop)
    if len(lists) != 1 or lists[0][0] not in KINDS:
        return None
    number, at, to = lists[0]
    values = _places(record, at, to)
    if len(values) != 1 or values[0][0] != 1:
        return None
    kind = KINDS[number]
    _, first, end = values[0]
    if kind == "float32" and (end - first) % 4:
        return None
    if kind == "int64":
        varints(record[first:end])
    return (kind, first, end) if end > first or kind == "bytes" else None


def varints(data: bytes) -> NDArray[np.int64]:
    """All varints of `data`, as int64."""
    if len(data) <= _FEW_BYTES:
        return np.array(list(_varints(data)), np.uint64).view(np.int64)
    raw = np.frombuffer(data, np.uint8)
    last = np.flatnonzero(raw < 0x80)
    if len(raw) and (not len(last) or last[-1] != len(raw) - 1):
        raise ValueError("a number is cut")
    starts = np.concatenate([[0], last[:-1] + 1]) if len(last) else last
    if len(last) and (last - starts).max() > 9:
        raise ValueError("a number has more than 10 bytes")
    shifts = (np.arange(len(raw)) - np.repeat(starts, last - starts + 1)).astype(np.uint64) * np.uint64(7)
    parts = (raw & 0x7F).astype(np.uint64) << shifts
    return np.add.reduceat(parts, starts).view(np.int64) if len(last) else np.zeros(0, np.int64)


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value & 0xFFFFFFFFFFFFFFFF


def _places(data: bytes, at: int, end: int) -> list[tuple[int, int, int]]:
    """Number, start and end of the content of each field of the message from `at` to `end`."""
    fields = []
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _DELIMITED:
            length, at = _varint(data, at)
            stop = at + length
        elif kind == _VARINT:
            stop = _varint(data, at)[1]
        elif kind == _FIXED64:
            stop = at + 8
        elif kind == _FIXED32:
            stop = at + 4
        else:
            raise ValueError(f"byte {at} has wire type {kind}")
        if stop > end:
            raise ValueError(f"a field ends at byte {stop} of {end}")
        fields.append((key >> 3, at, stop))
        at = stop
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place after it."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    shift = 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 10 bytes")
