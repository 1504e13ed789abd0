"""Where a user's code comes from: it travels with the code, so that tracebacks name the user's own files and lines."""

import msgspec
from msgspec import Struct

from sparktrain.errors import ProtocolError

NAME = "sparktrain-origins.json"
"""In the archive of the user's modules: no module can be called so."""


class Source(Struct, frozen=True):
    """A source that exists in the driver alone, such as a cell of a notebook."""

    shown: str
    """Its name for people."""
    text: str


class Origins(Struct, frozen=True):
    """Of one training function and the modules that travel with it."""

    folder: str
    """The working directory of the driver."""
    places: dict[str, str] = {}
    """Each file and package of the archive, by its name there: where the user has it."""
    sources: dict[str, Source] = {}
    """By the file name that compiled code has."""


def encode(origins: Origins) -> bytes:
    """As it lies in the archive."""
    return msgspec.json.encode(origins, order="deterministic")


def decode(data: bytes) -> Origins:
    """Raises ProtocolError for what is no such thing."""
    try:
        return msgspec.json.decode(data, type=Origins)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"the origins of the code cannot be read: {error}") from error
