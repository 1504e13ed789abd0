"""Certificates of servers that the API server asks."""

from pathlib import Path

from tests.support.kubernetes.namespaces import run


def self_signed(folder: Path, address: str) -> tuple[Path, Path]:
    """Write a key and a certificate of a server at an address, for a day, into a new folder; returns both."""
    folder.mkdir(parents=True)
    key, certificate = (folder / f"tls.{suffix}" for suffix in ("key", "crt"))
    kind = ("-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=webhook")
    files = ("-keyout", str(key), "-out", str(certificate))
    run("openssl", "req", *kind, "-addext", f"subjectAltName=IP:{address}", *files)
    return key, certificate
