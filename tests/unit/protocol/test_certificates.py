"""Certificates of one run."""

import pickle
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from sparktrain.base.clock import SystemClock
from sparktrain.protocol.certificates import (
    RENEW_AFTER,
    SERVER_NAME,
    CertificateBundle,
    CertificateKeeper,
    issue,
    server_fingerprint,
)
from sparktrain.protocol.ticket import AgentTicket


class NoonClock(SystemClock):
    def wall(self) -> float:
        return datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()


def parsed(bundle: CertificateBundle) -> tuple[x509.Certificate, x509.Certificate]:
    return x509.load_pem_x509_certificate(bundle.authority), x509.load_pem_x509_certificate(bundle.certificate)


def test_both_sides_trust_one_authority_and_nobody_else() -> None:
    mine, other = issue("mine"), issue("mine")
    assert mine.server.authority == mine.agent.authority != other.agent.authority
    for bundle in (mine.server, mine.agent):
        authority, certificate = parsed(bundle)
        certificate.verify_directly_issued_by(authority)
        with pytest.raises(ValueError, match="does not match"):
            certificate.verify_directly_issued_by(parsed(other.agent)[0])


def test_each_certificate_serves_one_purpose() -> None:
    certificates = issue("run")
    for bundle, purpose in (
        (certificates.server, ExtendedKeyUsageOID.SERVER_AUTH),
        (certificates.agent, ExtendedKeyUsageOID.CLIENT_AUTH),
    ):
        _, certificate = parsed(bundle)
        assert list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [purpose]
        assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    names = parsed(certificates.server)[1].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [SERVER_NAME]


def strict_context(bundle: CertificateBundle, protocol: int, place: Path) -> ssl.SSLContext:
    place.write_bytes(bundle.certificate + bundle.key)
    context = ssl.SSLContext(protocol)
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_cert_chain(place)
    context.load_verify_locations(cadata=bundle.authority.decode())
    return context


def test_both_sides_verify_in_strict_mode(tmp_path: Path) -> None:
    """As the default context of Python 3.13 does."""
    keeper = CertificateKeeper("run")
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_side = strict_context(keeper.server, ssl.PROTOCOL_TLS_SERVER, tmp_path / "server")
    client_side = strict_context(keeper.agent, ssl.PROTOCOL_TLS_CLIENT, tmp_path / "agent")
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    client = client_side.wrap_bio(to_client, to_server, server_hostname=SERVER_NAME)
    for side in (client, server, client):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    server.do_handshake()
    assert client.getpeercert()
    assert server.getpeercert()


def test_valid_from_yesterday_for_as_long_as_asked() -> None:
    certificates = issue("run", valid_days=3, clock=NoonClock())
    assert certificates.expires == datetime(2026, 2, 3, 12, tzinfo=UTC)
    for bundle in (certificates.server, certificates.agent):
        for certificate in parsed(bundle):
            assert certificate.not_valid_before_utc == datetime(2026, 1, 30, 12, tzinfo=UTC)
            assert certificate.not_valid_after_utc == certificates.expires
    assert issue("run", clock=NoonClock()).expires - datetime(2026, 1, 31, 12, tzinfo=UTC) == timedelta(days=30)


def test_keys_are_shown_nowhere_and_the_authority_has_none() -> None:
    certificates = issue("mnist")
    ticket = AgentTicket("mnist", ("h",), 1, certificates.agent)
    for shown in (repr(certificates), repr(ticket), str(ticket.certificates), f"{ticket!r}"):
        assert "PRIVATE" not in shown
        assert "CERTIFICATE" not in shown
    authority, _ = parsed(certificates.server)
    for bundle in (certificates.server, certificates.agent):
        key = load_pem_private_key(bundle.key, None)
        assert key.public_key() == parsed(bundle)[1].public_key() != authority.public_key()


def test_ticket_survives_pickling() -> None:
    ticket = AgentTicket("mnist", ("h", "10.0.0.1"), 4040, issue("mnist").agent, connect_s=5)
    assert pickle.loads(pickle.dumps(ticket)) == ticket


# ---- a run that outlasts its certificates


class DayClock(SystemClock):
    """Days since some noon."""

    def __init__(self) -> None:
        self.day = 0.0

    def wall(self) -> float:
        return datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() + self.day * 86_400

    def time(self) -> datetime:
        return datetime.fromtimestamp(self.wall(), UTC)


def accepts(one: CertificateBundle, other: CertificateBundle, at: datetime) -> bool:
    """Whether the side with `one` takes what the side with `other` shows."""
    shown = x509.load_pem_x509_certificate(other.certificate)
    for authority in x509.load_pem_x509_certificates(one.authority):
        if authority.subject == shown.issuer and shown.not_valid_before_utc <= at < shown.not_valid_after_utc:
            shown.verify_directly_issued_by(authority)
            return True
    return False


def meet(server: CertificateBundle, agent: CertificateBundle, at: datetime) -> bool:
    return accepts(server, agent, at) and accepts(agent, server, at)


@pytest.mark.long
def test_for_months_all_agents_of_the_last_weeks_can_join_and_older_ones_cannot() -> None:
    clock = DayClock()
    keeper = CertificateKeeper("run", clock=clock)
    fingerprint = server_fingerprint(keeper.server.certificate)
    given, renewals = {0.0: keeper.agent}, 0
    while clock.day < 100:
        clock.day += 1.25
        renewals += keeper.renew()
        given[clock.day] = keeper.agent
        for day, bundle in given.items():
            age = clock.day - day
            if age < 30 * RENEW_AFTER:
                assert meet(keeper.server, bundle, clock.time()), f"on day {clock.day}, one that got its own {age} ago"
            assert age <= 30 or not accepts(keeper.server, bundle, clock.time())
        assert server_fingerprint(keeper.server.certificate) == fingerprint
    assert renewals == 7


def test_a_driver_that_has_slept_longer_than_its_certificates_has_new_ones() -> None:
    clock = DayClock()
    keeper = CertificateKeeper("run", clock=clock)
    clock.day = 100.0
    assert keeper.renew()
    assert not keeper.renew()
    assert meet(keeper.server, keeper.agent, clock.time())


def test_fingerprints_are_of_one_driver() -> None:
    one, other = issue("run"), issue("run")
    assert server_fingerprint(one.server.certificate) != server_fingerprint(other.server.certificate)
    with pytest.raises(ValueError, match="cannot be read"):
        server_fingerprint(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
