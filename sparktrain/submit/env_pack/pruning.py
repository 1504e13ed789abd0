"""Old packs: which there are, and their removal."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from sparktrain import formatting
from sparktrain.store.base import Store

_NAMES = "sparktrain-python*.tar.gz"


class OldPack(Struct, frozen=True):
    """A pack that was made before."""

    archive: str
    """In its store."""
    size: int
    """In bytes."""
    modified: float
    """Seconds since 1970, by the store's clock."""

    def line(self, now: float) -> str:
        """For people; `now` is in seconds since 1970."""
        return f"{self.archive}  {formatting.size(self.size)}  {formatting.ago(now - self.modified)}"


def old_packs(store: Store, kept: str) -> list[OldPack]:
    """All packs but `kept`, the oldest first; other files are none. Blocks on the store; raises OSError."""
    archives = [path for path in store.list() if fnmatchcase(path, _NAMES) and path != kept]
    infos = [(path, store.stat(path)) for path in archives]
    return sorted((OldPack(path, info.size, info.modified) for path, info in infos), key=lambda each: each.modified)


def remove(store: Store, packs: Sequence[OldPack]) -> None:
    """Delete them. Applications that run from one get no new executors. Blocks on the store; raises OSError."""
    for each in packs:
        store.delete(each.archive)
