"""What an agent needs to find its coordinator and to authenticate."""

from dataclasses import dataclass, field

from sparktrain.config.store_address import StoreAddress
from sparktrain.protocol.credentials import CertificateBundle


@dataclass(frozen=True)
class CoordinatorHome:
    """Where agents find a coordinator that one of them starts, and what they start it with."""

    store: StoreAddress = field(repr=False)
    run: str
    """The name of the run, and of its directory."""
    call: str
    """The call, twelve hexadecimal digits: another call for the same run has other coordinators."""
    fingerprint: str
    """Of the key that every coordinator of the call proves itself by."""
    secrets: bytes = field(repr=False)
    """What only the process of a coordinator reads: `CoordinatorSecrets`, encoded."""
    tokens: bytes = field(default=b"", repr=False)
    """A token file of Hadoop, by which an agent reads the run directory; empty where the store needs none."""


@dataclass(frozen=True)
class AgentTicket:
    """Pickled by Spark into every agent's task; it holds a key, which its repr does not show.

    Never put it into argv, environment, Spark configuration or a file.
    """

    pool: str
    hosts: tuple[str, ...]
    """Names and addresses under which the coordinator may be reached, most likely first."""
    port: int
    certificates: CertificateBundle
    connect_s: float = 60.0
    """How long an agent tries to connect before it gives up."""
    refused_s: float | None = None
    """How long an agent that had joined still dials while the driver's host refuses connections; None for no limit,
    where Spark ends the agent's task when the driver is gone."""
    batch: int = 0
    """The number of the agent's batch in its pool, which accepts no agent of a batch that has ended."""
    hold_s: float = 0.0
    """How long the agent holds its member once its coordinator is lost, for the next one; 0 where there is none that
    the agent could reach."""
    preload: tuple[str, ...] = ()
    """What zygotes import first: the coordinator asks for it too."""
    home: CoordinatorHome | None = None
    """Set where the coordinator is in the cluster: then the ticket has no hosts and no port."""
