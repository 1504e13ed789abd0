"""Decodes Thrift's compact protocol, in which Parquet writes its footer. Pure."""

import struct
from typing import Any

_TRUE = 1
_FALSE = 2
_BYTE = 3
_DOUBLE = 7
_BINARY = 8
_LIST = 9
_SET = 10
_MAP = 11
_STRUCT = 12
_UUID = 13
_INTEGERS = (4, 5, 6)
_DEEPEST = 32


def decoded_struct(data: bytes) -> dict[int, Any]:
    """The struct at the start of `data`: values by the numbers of their fields. Structs in it are such dicts too.

    Raises ValueError for bytes that are none.
    """
    try:
        return _Decoder(data).structure(0)
    except (IndexError, struct.error) as error:
        raise ValueError("it ends too early") from error


class _Decoder:
    """Reads values one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def structure(self, depth: int) -> dict[int, Any]:
        """A struct, up to its end."""
        # Corrupt bytes may nest without end.
        if depth > _DEEPEST:
            raise ValueError(f"it has structs of more than {_DEEPEST} levels")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            kind = head & 15
            fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _INTEGERS:
            return self._integer()
        if kind == _BINARY:
            return self._take(self._size())
        if kind == _STRUCT:
            return self.structure(depth + 1)
        if kind in (_LIST, _SET):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._size()
            return [self._value(head & 15, depth + 1) for _ in range(count)]
        if kind == _MAP:
            count = self._size()
            kinds = self._byte() if count else 0
            return [(self._value(kinds >> 4, depth + 1), self._value(kinds & 15, depth + 1)) for _ in range(count)]
        if kind in (_TRUE, _FALSE, _BYTE):  # a boolean in a list has a byte of its own
            return self._byte()
        if kind == _DOUBLE:
            return struct.unpack("<d", self._take(8))[0]
        if kind == _UUID:
            return self._take(16)
        raise ValueError(f"byte {self._at} has type {kind}")

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _size(self) -> int:
        """A number that is not negative."""
        byte = self._byte()
        if byte < 0x80:
            return byte
        value = byte & 0x7F
        shift = 7
        while byte >= 0x80:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 70:
                raise ValueError("a number has more than 10 bytes")
        return value

    def _integer(self) -> int:
        value = self._size()
        return (value >> 1) ^ -(value & 1)

    def _take(self, length: int) -> bytes:
        if self._at + length > len(self._data):
            raise ValueError(f"a text ends after byte {len(self._data)}")
        self._at += length
        return self._data[self._at - length : self._at]
