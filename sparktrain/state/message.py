"""Base of every message that a process of sparktrain sends, with the limits of its size."""

from typing import ClassVar

from msgspec import Struct

MAX_MESSAGE_BYTES = 128 * 2**20
"""Largest message: the user's code is the only large one."""

SMALL_BYTES = 64 * 2**10
"""Largest message of an agent that holds names and numbers only: the coordinator's loop decodes it."""

LARGE_BYTES = 2**20
"""Largest message of a member that has text or values of the user, such as a result of 30,000 metrics. With what an
agent adds, such as lines of a log, its message may be a quarter larger: the loop decodes that in milliseconds."""

LARGEST_OF_AGENT_BYTES = LARGE_BYTES + LARGE_BYTES // 4


class Message(Struct, frozen=True, tag=True):
    """Base of all messages."""

    most_bytes: ClassVar[int] = MAX_MESSAGE_BYTES
    """Size above which an encoded message is refused."""


class Small(Message, frozen=True):
    """Base of an agent's messages that hold names and numbers."""

    most_bytes: ClassVar[int] = SMALL_BYTES


class Large(Message, frozen=True):
    """Base of an agent's messages that hold text or values of the user."""

    most_bytes: ClassVar[int] = LARGEST_OF_AGENT_BYTES
