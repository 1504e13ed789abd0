"""Where the coordinator of a driver listens."""

from msgspec import Struct


class Address(Struct, frozen=True):
    """Where the coordinator listens, and what agents are told."""

    bind: str
    hosts: tuple[str, ...]
    """What agents try, the likeliest first."""
    port: int
