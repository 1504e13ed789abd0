"""What the members of a gang need to reach its own parameter servers."""

from msgspec import Struct

from sparktrain.config.backends import Backend
from sparktrain.config.gang_spec import GangSpec
from sparktrain.config.server_settings import ServerSettings
from sparktrain.protocol.credentials import NO_CERTIFICATES, CertificateBundle


class ServerKeys(Struct, frozen=True):
    """Settings and certificates; without certificates in gangs of another backend. Never shown or logged."""

    settings: ServerSettings = ServerSettings()
    server: CertificateBundle = NO_CERTIFICATES
    """With it, a server proves itself, and verifies the members that train."""
    member: CertificateBundle = NO_CERTIFICATES
    """With it, a member that trains proves itself, and verifies the servers."""

    def __repr__(self) -> str:
        return f"ServerKeys({self.settings.mode.value})"


def server_keys(gang: GangSpec, run: str) -> ServerKeys:
    """The settings of the servers of a run's gangs, with new certificates; none for another backend."""
    from sparktrain.protocol import certificates  # members have no use for what makes them

    if gang.backend is not Backend.PARAMETER_SERVER:
        return ServerKeys()
    # Certificates of their own: a member that holds these cannot connect to the coordinator.
    run_certificates = certificates.issue(f"{run} parameter servers")
    return ServerKeys(gang.servers, server=run_certificates.server, member=run_certificates.agent)
