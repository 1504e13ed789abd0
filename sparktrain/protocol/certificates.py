"""Certificates of one run: only who holds them can speak to its coordinator, and they are worthless for any other run.

An authority made for the run signs one certificate for the coordinator and one for all agents. Its key is forgotten
at once, so that nobody can ever join the run with a certificate made later. Nothing is written to disk.
"""

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sparktrain.clock import Clock, SystemClock

SERVER_NAME = "coordinator.sparktrain.invalid"
"""DNS name in every coordinator's certificate: agents ask for it whatever address they dial. No host can have it."""

VALID_DAYS = 30.0

_SKEW = timedelta(days=1)


@dataclass(frozen=True)
class CertificateBundle:
    """What one side needs to prove itself and to check the other: PEM bytes. Never printed."""

    authority: bytes = field(repr=False)
    """Certificate that must have signed the other side's."""
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)


@dataclass(frozen=True)
class Certificates:
    """Both sides' certificates of one run."""

    run: str
    expires: datetime
    server: CertificateBundle = field(repr=False)
    agent: CertificateBundle = field(repr=False)


@dataclass(frozen=True)
class _Authority:
    name: x509.Name
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    begins: datetime
    expires: datetime

    def sign(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *extensions: tuple[x509.ExtensionType, bool]
    ) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.begins)
            .not_valid_after(self.expires)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def issue(run: str, valid_days: float = VALID_DAYS, clock: Clock | None = None) -> Certificates:
    """New certificates for `run`, valid from one day ago, for clocks differ between hosts."""
    now = datetime.fromtimestamp((clock or SystemClock()).wall(), UTC)
    # The server shows its certificate to whoever connects, so the run's name must not be in it.
    name = _name(f"sparktrain {secrets.token_hex(8)}")
    authority = _Authority(name, ec.generate_private_key(ec.SECP256R1()), now - _SKEW, now + timedelta(days=valid_days))
    own = authority.sign(
        name,
        authority.key.public_key(),
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (_usage(key_cert_sign=True), True),
    )
    server = _bundle(authority, own, ExtendedKeyUsageOID.SERVER_AUTH, SERVER_NAME)
    agent = _bundle(authority, own, ExtendedKeyUsageOID.CLIENT_AUTH, "agent.sparktrain.invalid")
    return Certificates(run, authority.expires, server, agent)


def _bundle(authority: _Authority, own: bytes, purpose: x509.ObjectIdentifier, dns_name: str) -> CertificateBundle:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = authority.sign(
        _name(dns_name),
        key.public_key(),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(digital_signature=True), True),
        (x509.ExtendedKeyUsage([purpose]), True),
        (x509.SubjectAlternativeName([x509.DNSName(dns_name)]), False),
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return CertificateBundle(own, certificate, pem)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
