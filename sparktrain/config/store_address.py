"""The address of a store, with which another process can open it."""

from msgspec import Struct

DEFAULT_DIR = "sparktrain-runs"
"""The default place of run directories: below the working directory."""
STORE_TIMEOUT_S = 300.0
"""How long a call of a store retries: the longest outage that a run survives."""


class StoreAddress(Struct, frozen=True):
    """What another process needs to open the same store, even on a host without configuration for it."""

    url: str
    settings: dict[str, str] = {}
    """Settings of the store from the driver's configuration, such as addresses of NameNodes. They may include secrets:
    they travel only over authenticated, encrypted connections, and are never shown or stored."""
    timeout_s: float = STORE_TIMEOUT_S
    """How long each call retries."""
