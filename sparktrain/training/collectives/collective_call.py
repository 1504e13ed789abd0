"""One collective, as members compare it."""

from msgspec import Struct


class CollectiveCall(Struct, frozen=True):
    """One collective that a member has started."""

    number: int
    """Its number among all collectives of the ring, from 0."""
    key: str
    """Equal on all members that call the same collective."""
    shown: str
    """The text for messages."""
