"""One collective, as members compare it."""

from msgspec import Struct

LOGGED_CALLS = 32
"""How many of the newest collectives the log of a ring keeps."""
RETURNED = "none, for its function has returned"
"""The text of a collective in which a member waits for the others at its end."""


class CollectiveCall(Struct, frozen=True):
    """One collective that a member has started."""

    number: int
    """Its number among all collectives of the ring, from 0."""
    key: str
    """Equal on all members that call the same collective."""
    shown: str
    """The text for messages."""
