"""Certificates of one run: only processes that hold them can connect to its coordinator, and no other run accepts them.

An authority made for the run signs one certificate for the coordinator and one for all agents. Its key is discarded
at once, so that no certificate made later can join the run. Nothing is written to disk. A run that outlasts its
certificates gets others from a new authority, which both sides trust beside the old one.
"""

import hashlib
import secrets
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.protocol.credentials import SERVER_NAME, CertificateBundle

VALID_DAYS = 30.0

RENEW_AFTER = 0.45
"""Part of their lifetime after which certificates are renewed. Two sets are in use at a time: a little less than half,
so that the older set has expired when the next one is made."""

_SKEW = timedelta(days=1)


@dataclass(frozen=True)
class RunCertificates:
    """Both sides' certificates of one run."""

    run: str
    starts: datetime
    expires: datetime
    server: CertificateBundle = field(repr=False)
    agent: CertificateBundle = field(repr=False)


@dataclass(frozen=True)
class _Authority:
    name: x509.Name
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    starts: datetime
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
            .not_valid_before(self.starts)
            .not_valid_after(self.expires)
            # Verification in strict mode, which is the default context's since Python 3.13, asks for both.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def issue(
    run: str, valid_days: float = VALID_DAYS, clock: Clock | None = None, server_key: bytes | None = None
) -> RunCertificates:
    """New certificates for `run`, valid from one day ago, because clocks differ between hosts.

    `server_key` is the coordinator's earlier key, by which others recognize it; None for a new one.
    """
    now = datetime.fromtimestamp((clock or SystemClock()).wall(), UTC)
    # The server shows its certificate to every peer, so the run's name must not be in it.
    name = _name(f"sparktrain {secrets.token_hex(8)}")
    authority = _Authority(name, _new_key(), now - _SKEW, now + timedelta(days=valid_days))
    ca_certificate = authority.sign(
        name,
        authority.key.public_key(),
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (_usage(key_cert_sign=True), True),
    )
    # Others recognize a coordinator by its key, in the journal and across renewals, so a new certificate keeps it.
    key = _new_key() if server_key is None else serialization.load_pem_private_key(server_key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    server = _bundle(authority, ca_certificate, ExtendedKeyUsageOID.SERVER_AUTH, SERVER_NAME, key)
    agent = _bundle(authority, ca_certificate, ExtendedKeyUsageOID.CLIENT_AUTH, "agent.sparktrain.invalid", _new_key())
    return RunCertificates(run, now, authority.expires, server, agent)


class CertificateKeeper:
    """The certificates of a run that may outlast them: two sets at any time; the older one expires first.

    The coordinator shows that of the older set, which all agents trust; agents get that of the newer one. Both sides
    trust the authorities of both. An agent without a renewal since its start can join for the lifetime of one set.
    """

    def __init__(
        self,
        run: str,
        valid_days: float = VALID_DAYS,
        clock: Clock | None = None,
        first: RunCertificates | None = None,
    ) -> None:
        """`first` is a set that was made elsewhere; None for a new one."""
        self._valid_days = valid_days
        self._clock = clock or SystemClock()
        self._older = self._newer = first or issue(run, valid_days, self._clock)

    @property
    def server(self) -> CertificateBundle:
        """The coordinator's current certificates."""
        return replace(self._older.server, authority=self._authorities)

    @property
    def agent(self) -> CertificateBundle:
        """The agents' current certificates."""
        return replace(self._newer.agent, authority=self._authorities)

    def renew(self) -> bool:
        """Make a new set when it is due; returns whether it was."""
        if self._now < self._newer.starts + timedelta(days=self._valid_days * RENEW_AFTER):
            return False
        new_set = issue(self._newer.run, self._valid_days, self._clock, self._newer.server.key)
        # After a suspension of weeks no agent accepts the older set.
        self._older = self._newer if self._now < self._newer.expires else new_set
        self._newer = new_set
        return True

    @property
    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall(), UTC)

    @property
    def _authorities(self) -> bytes:
        return b"".join(dict.fromkeys((self._older.server.authority, self._newer.server.authority)))


def server_fingerprint(certificate: bytes) -> str:
    """SHA-256 of the public key of a certificate in PEM, hexadecimal: it identifies a coordinator across renewals.
    Raises ValueError for bytes that are no certificate."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    try:
        key = x509.load_pem_x509_certificate(certificate).public_key()
    except Exception as error:  # such as an unknown version or algorithm: these errors have no common base class
        raise ValueError(f"the certificate cannot be read: {error}") from error
    return hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest()


def _bundle(
    authority: _Authority,
    ca_certificate: bytes,
    purpose: x509.ObjectIdentifier,
    dns_name: str,
    key: ec.EllipticCurvePrivateKey,
) -> CertificateBundle:
    certificate = authority.sign(
        _name(dns_name),
        key.public_key(),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(digital_signature=True), True),
        (x509.ExtendedKeyUsage([purpose]), True),
        (x509.SubjectAlternativeName([x509.DNSName(dns_name)]), False),
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return CertificateBundle(ca_certificate, certificate, pem)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


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
