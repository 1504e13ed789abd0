"""What users add to a run has a name of its own, in the order of time, and names its user."""

import getpass
import re
import secrets
from collections.abc import Collection
from contextlib import suppress
from typing import TypeVar

import msgspec
from msgspec import Struct

from sparktrain.base.decoding import from_json
from sparktrain.store.base import Store

Request = TypeVar("Request", bound=Struct)
_NAME = re.compile(r"(?:.*/)?(\d{13,16})-[0-9a-f]{8}\.json")
_DIGITS = 16


def new_name(store: Store, folder: str, wall: float) -> str:
    """A name for what is added to `folder` at `wall`, in seconds since 1970: no two processes get the same one.

    Names sort by time, and after all that the folder has already, although the clocks of hosts differ. Blocks; raises
    OSError.
    """
    matches = filter(None, map(_NAME.fullmatch, store.list(folder)))
    newest = max((int(match[1].ljust(_DIGITS, "0")) for match in matches), default=0)
    return f"{max(int(wall * 1e6), newest + 1):0{_DIGITS}d}-{secrets.token_hex(4)}"


def pending_requests(store: Store, folder: str, kind: type[Request], known_ids: Collection[str]) -> list[Request]:
    """The requests in `folder`, of a `kind` with an `id`, that are not among `known_ids`, the oldest first.

    Blocks; raises OSError.
    """
    requests = []
    for path in sorted(store.list(folder)):
        name = path.rpartition("/")[2].removesuffix(".json")
        # Another program may have put a file there: only what has a name of ours is a request.
        if name in known_ids or path != f"{folder}/{name}.json":
            continue
        with suppress(msgspec.MsgspecError, FileNotFoundError):
            requests.append(msgspec.structs.replace(from_json(store.read(path), kind), id=name))
    return requests


def current_user() -> str:
    """The name of the user of this process; empty where the system knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have a user without a name
        return ""
