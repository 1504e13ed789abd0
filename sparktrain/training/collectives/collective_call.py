"""One operation of a ring, as members compare it."""

from msgspec import Struct


class CollectiveCall(Struct, frozen=True):
    """One operation, as a member started it."""

    number: int
    """From 0, of all operations of the ring."""
    key: str
    """Equal on all members that call the same."""
    shown: str
    """For people."""
