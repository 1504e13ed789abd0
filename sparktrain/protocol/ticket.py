"""What an agent needs to find its coordinator and to authenticate."""

from dataclasses import dataclass

from sparktrain.protocol.credentials import CertificateBundle


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
