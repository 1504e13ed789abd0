"""Where a run's files are, in words that another process understands."""

from msgspec import Struct

DEFAULT_DIR = "sparktrain-runs"
"""Where run directories are made when nothing is said: below the working directory."""
STORE_TIMEOUT_S = 300.0
"""How long a call of a store goes on trying; a run outlives so long an outage of its store."""


class StoreAddress(Struct, frozen=True):
    """What another process needs to open the same store, on a host that has no configuration of its own for it."""

    url: str
    settings: dict[str, str] = {}
    """What the driver's configuration says about the store, such as the addresses of its NameNodes. May hold secrets:
    it travels over authenticated, encrypted connections alone, and is neither shown nor stored."""
    timeout_s: float = STORE_TIMEOUT_S
    """How long each call goes on trying."""
