"""The file in which a member of a gang leaves the times of its newest steps and collectives.

It grows while the member trains: each part has the steps that are the newest ones then, behind its length.
"""

import msgspec
from msgspec import Struct

from sparktrain.base.decoding import from_msgpack
from sparktrain.errors import RunDirectoryError

Row = tuple[int, ...]


class StepFile(Struct, frozen=True, tag=1):
    """Times are nanoseconds of the monotonic clock of the member's host."""

    steps: list[Row]
    """Steps finished so far, when the newest of them ended, and how long it waited for its batch."""
    calls: list[Row]
    """When the member entered and left each collective, in the order in which it entered them."""


_LENGTH_BYTES = 4


def encoded(content: StepFile) -> bytes:
    """The bytes of a part of the file."""
    packed = msgspec.msgpack.encode(content)
    return len(packed).to_bytes(_LENGTH_BYTES) + packed


def decoded(content: bytes, path: str) -> list[StepFile]:
    """The complete parts of the file at `path`, in order.

    Raises RunDirectoryError for what no member has written.
    """
    parts: list[StepFile] = []
    start = _LENGTH_BYTES
    try:
        while start + (length := int.from_bytes(content[start - _LENGTH_BYTES : start])) <= len(content):
            if not length:
                break
            parts.append(from_msgpack(content[start : start + length], StepFile))
            start += length + _LENGTH_BYTES
    except msgspec.DecodeError as error:
        raise RunDirectoryError(f"{path} has no times of steps ({error}): remove it, and trace another run") from error
    return parts
