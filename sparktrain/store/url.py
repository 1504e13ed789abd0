"""From what the user writes as `dir=` to the store it names."""

import os
import re
from urllib.parse import unquote, urlsplit

from sparktrain.errors import SpecError
from sparktrain.spec.store import StoreAddress
from sparktrain.store.base import Store
from sparktrain.store.localfs import LocalStore

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def open_store(dir: str | os.PathLike[str] | StoreAddress) -> Store:
    """The store whose root is `dir`: a path, or `file:///path`. Does not touch it: `Store.probe` does.

    Raises SpecError for anything else.
    """
    text = dir.url if isinstance(dir, StoreAddress) else os.fspath(dir)
    if not text or not text.isprintable():
        raise SpecError(f"dir ({text!r}) must be the path of a directory: not empty, and of printable characters")
    scheme = _SCHEME.match(text)
    if scheme is None:
        return LocalStore(os.path.expanduser(text))
    if scheme[1].lower() != "file":
        raise SpecError(
            f"dir ({text}) names a {scheme[1]} store: only local directories can hold runs yet; "
            "pass a path on the driver's machine, such as /shared/runs or file:///shared/runs"
        )
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise SpecError(
            f"dir ({text}) names a directory of host {parts.netloc}: write file:///path, with three slashes"
        )
    return LocalStore(unquote(parts.path))
