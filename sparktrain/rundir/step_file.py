"""The file in which a member of a gang leaves the times of its newest steps and collectives."""

import msgspec
from msgspec import Struct

from sparktrain.errors import RunDirectoryError

Row = tuple[int, ...]


class StepFile(Struct, frozen=True, tag=1):
    """Times are nanoseconds of the monotonic clock of the member's host."""

    steps: list[Row]
    """Steps finished so far, when the newest of them ended, and how long it waited for its batch."""
    calls: list[Row]
    """When the member entered and left each collective, in the order in which it entered them."""


def encoded(content: StepFile) -> bytes:
    """The bytes of the file."""
    return msgspec.msgpack.encode(content)


def decoded(content: bytes, path: str) -> StepFile:
    """The content of the file at `path`. Raises RunDirectoryError for what no member has written."""
    try:
        return msgspec.msgpack.decode(content, type=StepFile)
    except msgspec.DecodeError as error:
        raise RunDirectoryError(f"{path} has no times of steps ({error}): remove it, and trace another run") from error
