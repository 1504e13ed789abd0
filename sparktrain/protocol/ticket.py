"""What an agent needs to find and to convince its coordinator."""

from dataclasses import dataclass

from sparktrain.protocol.credentials import CertificateBundle


@dataclass(frozen=True)
class AgentTicket:
    """Pickled by Spark into every agent's task; it holds a key, which its repr does not show.

    Never to be put into argv, environment, Spark configuration or a file.
    """

    pool: str
    hosts: tuple[str, ...]
    """Names and addresses under which the coordinator may be reached, likeliest first."""
    port: int
    certificates: CertificateBundle
    connect_s: float = 60.0
    """How long an agent tries to connect before it gives up."""
    refused_s: float | None = None
    """How long an agent that was there before goes on dialing while the driver's host says that nobody of the pool
    listens; None for without end, where Spark ends the agent's task when the driver is gone."""
