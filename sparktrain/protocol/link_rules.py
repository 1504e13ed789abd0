"""The messages that each side of a link may send, their order and their sizes. For transports."""

from typing import Any

from msgspec import Struct

from sparktrain.errors import ProtocolError
from sparktrain.protocol.messages import FromAgent, Join, Leave, Refuse, ToAgent, Welcome
from sparktrain.state.message import LARGEST_OF_AGENT_BYTES, MAX_MESSAGE_BYTES, Message


class Closing(Message, frozen=True, tag=True):
    """Last message of a link in either direction; without it, the connection was lost."""

    reason: str


class Refusal(Message, frozen=True, tag=True):
    """The coordinator's answer to an upload, in place of `UploadDone`."""

    reason: str


class Speech(Struct, frozen=True):
    """The messages that one side may send, and their order."""

    kind: Any
    """Union of the message types."""
    first: tuple[type[Message], ...]
    only_first: tuple[type[Message], ...]
    last: tuple[type[Message], ...]
    most_bytes: int
    """Largest message of any kind."""

    def check(self, previous: type[Message] | None, message: Message) -> None:
        """Raise ProtocolError unless `message` may follow a message of type `previous`."""
        name = type(message).__name__
        if previous is None and not isinstance(message, self.first):
            raise ProtocolError(f"{name} refused: the first message must be {_names(self.first)}")
        if previous is not None and isinstance(message, self.only_first):
            raise ProtocolError(f"{name} refused: it may only be the first message")
        if previous is not None and issubclass(previous, self.last):
            raise ProtocolError(f"{name} refused: {previous.__name__} was the last message")


def _names(types: tuple[type[Message], ...]) -> str:
    return " or ".join(kind.__name__ for kind in types)


AGENT_SPEECH = Speech(
    FromAgent | Closing,
    first=(Join,),
    only_first=(Join,),
    last=(Leave,),
    most_bytes=LARGEST_OF_AGENT_BYTES,
)
COORDINATOR_SPEECH = Speech(
    ToAgent | Closing,
    first=(Welcome, Refuse),
    only_first=(Welcome,),
    last=(Refuse,),
    most_bytes=MAX_MESSAGE_BYTES,
)
