"""Credentials of one side of a connection: plain bytes, so that agents and members need no cryptography."""

from dataclasses import dataclass, field

SERVER_NAME = "coordinator.sparktrain.invalid"
"""DNS name in every coordinator's certificate: agents verify it at every address. No host can have it."""


@dataclass(frozen=True)
class CertificateBundle:
    """What one side needs to prove itself and to check the other: PEM bytes. Never printed."""

    authority: bytes = field(repr=False)
    """Certificates; one must have signed the other side's."""
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)


NO_CERTIFICATES = CertificateBundle(b"", b"", b"")
"""For a side that needs none."""
