"""Messages to bytes and back.

MessagePack by msgspec, in place of JSON: it carries bytes and metrics that are not finite, which JSON cannot. Decoding
validates every field against its type; no executable type exists in the format.
"""

from typing import Any, TypeVar

import msgspec

from sparktrain.base.decoding import msgpack_decoder
from sparktrain.base.spans import span
from sparktrain.errors import ProtocolError

T = TypeVar("T")

VERSION = 1
"""Both sides must speak the same version; it is part of the gRPC method names."""

_ENCODER = msgspec.msgpack.Encoder()


def prepare(kind: Any) -> None:
    """Make the decoder of the union `kind` now, which takes a millisecond, and not with the first message."""
    msgpack_decoder(kind)


def encode(message: msgspec.Struct) -> bytes:
    """Bytes of `message`."""
    with span("message"):
        return _ENCODER.encode(message)


def decode(data: bytes, kind: Any) -> Any:
    """The message in `data`, which must be one of the union `kind`.

    Raises ProtocolError for anything else: bytes that are no MessagePack, an unknown type, a missing or wrong field.
    """
    try:
        with span("message"):
            return msgpack_decoder(kind).decode(data)
    # Everything that bytes of a peer can raise, so that no message ends more than its link.
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"message of {len(data)} bytes refused: {error}") from error
