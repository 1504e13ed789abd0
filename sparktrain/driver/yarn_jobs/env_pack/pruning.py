"""Finds and removes old packs."""

import re
from collections.abc import Sequence

from msgspec import Struct

from sparktrain.base import formatting
from sparktrain.store.base import Store

_NAME = re.compile(r"sparktrain-python\d+\.\d+-[0-9a-f]{16}\.tar\.gz")
"""See `Contents.archive`. A pack is directly in its folder: what is in a folder beneath it is a copy of a user."""


class OldPack(Struct, frozen=True):
    """A pack from an earlier call."""

    archive: str
    """The path in its store."""
    size: int
    """The size in bytes."""
    modified: float
    """The time of its upload in seconds since 1970, by the store's clock."""

    def line(self, now: float) -> str:
        """The pack in one line, for people; `now` is in seconds since 1970."""
        return f"{self.archive}  {formatting.size(self.size)}  {formatting.ago(now - self.modified)}"


def old_packs(store: Store, archive: str) -> list[OldPack]:
    """All packs except `archive`, the oldest first; other files are ignored. Blocks on the store; raises OSError."""
    # By exact names: a file in a folder that starts like a pack, and a link to a pack, once counted as old packs.
    archives = [
        path for path in store.list() if _NAME.fullmatch(path) and path != archive and store.way_out(path) is None
    ]
    infos = [(path, store.stat(path)) for path in archives]
    return sorted((OldPack(path, info.size, info.modified) for path, info in infos), key=lambda pack: pack.modified)


def remove(store: Store, packs: Sequence[OldPack]) -> None:
    """Delete packs. Applications that run from one get no new executors. Blocks on the store; raises OSError."""
    for pack in packs:
        store.delete(pack.archive)
