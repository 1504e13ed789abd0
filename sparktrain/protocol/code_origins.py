"""Where a user's code comes from: sent with the code, so that tracebacks name the user's own files and lines."""

import msgspec
from msgspec import Struct

from sparktrain.base.decoding import from_json
from sparktrain.errors import ProtocolError

NAME = "sparktrain-origins.json"
"""Name in the archive of the user's modules: no module can have it."""
MOST_LEFT = 500


class Source(Struct, frozen=True):
    """A source that exists in the driver alone, such as a cell of a notebook."""

    shown: str
    """Its name for display."""
    text: str


class Origins(Struct, frozen=True):
    """Origins of one training function and the modules sent with it."""

    folder: str
    """The working directory of the driver."""
    places: dict[str, str] = {}
    """Path at the user's side of each file and package, by its name in the archive."""
    sources: dict[str, Source] = {}
    """Sources by the file name that compiled code has."""
    left: tuple[str, ...] = ()
    """Modules and packages of the user's that were not sent, by top-level name: at most `MOST_LEFT`."""


def encode(origins: Origins) -> bytes:
    """The bytes that the archive holds."""
    # Deterministic, for these bytes are part of the code's digest: the same code must have the same one in each call.
    return msgspec.json.encode(origins, order="deterministic")


def decode(data: bytes) -> Origins:
    """The origins in `data`. Raises ProtocolError for other bytes."""
    try:
        return from_json(data, Origins)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"the origins of the code cannot be read: {error}") from error
