"""Looks for secrets where none may be: in what other users of a host can see, and in what outlives a run."""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

Secrets = Mapping[str, bytes]
"""By what they are called in messages."""


def spellings(secret: bytes) -> set[bytes]:
    """How a secret may be written: as it is, in hexadecimal, and in base64, also amidst other bytes."""
    found = {secret, secret.hex().encode(), secret.hex().upper().encode()}
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + secret)
        inner = encoded[4 if shift else 0 : len(encoded) - 4]
        found |= {inner, inner.translate(bytes.maketrans(b"+/", b"-_"))}
    return found


def noted_in(folder: Path) -> dict[str, bytes]:
    """The secrets that a driver has noted for its test."""
    noted = json.loads((folder / "secrets.json").read_text())
    return {name: base64.b64decode(secret) for name, secret in noted.items()}


def found_in(content: bytes, secrets: Secrets) -> list[str]:
    """Which of the secrets `content` has."""
    return [name for name, secret in secrets.items() if any(each in content for each in spellings(secret))]


def shown_by(processes: Iterable[psutil.Process], secrets: Secrets) -> list[str]:
    """The secrets in the arguments or the environment of `processes`, each with its process."""
    found = []
    for process in processes:
        for place in ("cmdline", "environ"):
            try:
                content = Path(f"/proc/{process.pid}/{place}").read_bytes()
                found += [f"{name}: {place} of {process.name()} ({process.pid})" for name in found_in(content, secrets)]
            except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
                continue  # it has ended
    return found


def kept_in(folder: Path, secrets: Secrets, but_not: str = "$^") -> list[str]:
    """The secrets in files below `folder`, each with its file, except for paths that match `but_not`."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and not re.search(but_not, path.as_posix()):
            found += [f"{name}: {path}" for name in found_in(path.read_bytes(), secrets)]
    return found
