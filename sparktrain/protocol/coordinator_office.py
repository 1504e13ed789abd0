"""What a coordinator in the cluster needs to start, on the standard input of its process."""

from msgspec import Struct

from sparktrain.config.connect_server import ConnectServer
from sparktrain.config.store_address import StoreAddress
from sparktrain.protocol.credentials import CertificateBundle


class CoordinatorSecrets(Struct, frozen=True, kw_only=True):
    """What a call gives its coordinators, and the run directory does not hold. Never printed, never stored."""

    server: CertificateBundle
    agent: CertificateBundle
    starts: float
    """From when the certificates are valid, in seconds since 1970."""
    expires: float
    env: dict[str, str] = {}
    """Environment variables of trials."""
    callbacks: bytes = b""
    """The callbacks of the call, pickled."""
    connect: ConnectServer | None = None
    """The Connect server that runs the agents, at the address at which executors reach it; None where there is none."""

    def __repr__(self) -> str:
        return "CoordinatorSecrets(...)"


class CoordinatorOffice(Struct, frozen=True, kw_only=True):
    """What an agent writes to the process of the coordinator that it starts."""

    store: StoreAddress
    run: str
    call: str
    number: int
    """Of this coordinator in its call, from 1."""
    hosts: tuple[str, ...]
    """Under which agents reach this host, the likeliest first."""
    secrets: bytes
    """`CoordinatorSecrets`, encoded: agents do not read it."""
    tokens: bytes = b""
    """A token file of Hadoop; empty where the store needs none."""
    sys_path: tuple[str, ...] = ()
    """Where the agent imports from: Spark adds files of the session to it."""

    def __repr__(self) -> str:
        return f"CoordinatorOffice({self.run!r}, {self.call!r}, {self.number})"
