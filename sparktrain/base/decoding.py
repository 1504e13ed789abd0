"""Bytes to values of a type, by msgspec, in any thread.

msgspec collects the fields of a class when the first thread decodes it, and lets other threads use what is not complete
yet, which ends the process. Here one thread at a time prepares a type, and no value is decoded before.
"""

import os
import threading
from functools import cache
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_preparing = threading.RLock()
# A child has no other thread, which would release the lock or complete the type.
os.register_at_fork(before=_preparing.acquire, after_in_parent=_preparing.release, after_in_child=_preparing.release)


def from_json(content: bytes | str, kind: type[T]) -> T:
    """The value in JSON. Raises what `Decoder.decode` of msgspec raises: MsgspecError, or an error of the text."""
    decoder: msgspec.json.Decoder[T] = json_decoder(kind)  # type: ignore[arg-type] # types are hashable
    return decoder.decode(content)


def from_msgpack(content: bytes | bytearray | memoryview, kind: type[T]) -> T:
    """The value in MessagePack. Raises what `Decoder.decode` of msgspec raises."""
    decoder: msgspec.msgpack.Decoder[T] = msgpack_decoder(kind)  # type: ignore[arg-type] # as above
    return decoder.decode(content)


def converted(value: Any, kind: type[T], *, strict: bool = True) -> T:
    """A value of plain lists and dicts as one of a type. Raises msgspec.ValidationError."""
    json_decoder(kind)  # type: ignore[arg-type] # it prepares the type
    return msgspec.convert(value, kind, strict=strict)


@cache
def json_decoder(kind: Any, *, strict: bool = True) -> msgspec.json.Decoder[Any]:
    """The decoder of JSON for a type; not `strict`, it takes text for numbers."""
    with _preparing:
        return msgspec.json.Decoder(kind, strict=strict)


@cache
def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """The decoder of MessagePack for a type."""
    with _preparing:
        return msgspec.msgpack.Decoder(kind)
