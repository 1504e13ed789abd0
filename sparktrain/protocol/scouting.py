"""What a client asks an executor before a run that it cannot reach: whether both see one directory, and who is who."""

from dataclasses import dataclass, field

from msgspec import Struct

from sparktrain.config.connect_server import ConnectServer
from sparktrain.config.store_address import StoreAddress


@dataclass(frozen=True)
class ScoutTicket:
    """Pickled by Spark into the task of a scout. It may hold tokens, which its repr does not show."""

    store: StoreAddress = field(repr=False)
    marker: str
    """A file of the store that the client has written; empty: the store is not asked."""
    hosts: tuple[str, ...] = ()
    """Where the client listens, for the question whether executors reach it; empty: they do not try."""
    port: int = 0
    tokens: bytes = field(default=b"", repr=False)
    server: ConnectServer | None = field(default=None, repr=False)
    """The Connect server that runs this task, for the question whether executors reach it; None: they do not try."""


class ScoutReport(Struct, frozen=True):
    """What an executor answers."""

    host: str
    versions: dict[str, str] = {}
    """As an agent reports them when it joins."""
    problem: str = ""
    """Why it cannot use the store."""
    sees_marker: bool = False
    reaches_client: bool = False
    server: str = ""
    """The address at which it reaches the Connect server."""
    server_problem: str = ""
    """Why it reaches it at none."""
