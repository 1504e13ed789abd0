"""What a training function's context says to its agent, and hears from it."""

import threading
from contextlib import suppress
from typing import Protocol

from sparktrain.errors import ProtocolError
from sparktrain.protocol import messages as m
from sparktrain.protocol.frames import BlockingPipe


class Wire(Protocol):
    """The way to whoever started the training function. Any thread may call it."""

    def send(self, message: m.FromMember) -> None:
        """Pass `message` on; does not wait for an answer. Raises OSError when nobody can be reached."""
        ...

    def stop_advised(self) -> bool:
        """Whether the function has been asked to return early; returns at once."""
        ...


class AgentWire:
    """The way to the agent of this member, over the socket pair made for its fork."""

    def __init__(self, pipe: BlockingPipe[m.ToMember]) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        self._heeded = False

    def send(self, message: m.FromMember) -> None:
        """See base class. Waits only while the agent, which reads all the time, is not scheduled."""
        with self._sending:
            self._pipe.send(message)

    def stop_advised(self) -> bool:
        """See base class."""
        with self._receiving, suppress(OSError, ProtocolError):
            while not self._heeded and (message := self._pipe.poll()) is not None:
                self._heeded = isinstance(message, m.Heed)
        return self._heeded


def sendable(text: str) -> str:
    """`text` as UTF-8 can carry it: lone surrogates, as in undecodable file names, are escaped."""
    return text.encode(errors="backslashreplace").decode()
