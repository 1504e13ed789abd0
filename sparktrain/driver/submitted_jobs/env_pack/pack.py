"""A pack of this process' Python: its contents, and its store."""

import re
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import Distribution
from pathlib import Path

from msgspec import Struct

from sparktrain.base import formatting
from sparktrain.config.store_address import StoreAddress
from sparktrain.driver.submitted_jobs.env_pack import interpreter, pack_archive
from sparktrain.driver.submitted_jobs.env_pack.contents import (
    Contents,
    PackEntry,
    contents,
    file_entry,
    files_of,
    is_editable,
    tree,
)
from sparktrain.driver.submitted_jobs.env_pack.packages import chosen, installed
from sparktrain.store.base import Store
from sparktrain.store.hadoop.hadoop_conf import user
from sparktrain.store.url import open_store

_NAME = re.compile(r"sparktrain-python\d+\.\d+-[0-9a-f]{16}\.tar\.gz")
"""See `Contents.archive`. A pack is directly in its folder: what is in a folder beneath it is a copy of a user."""
STORE_TIMEOUT_S = 60.0
"""How long to wait for a store that does not answer."""
_DISTRIBUTION = "sparktrain"
_PACKAGE = Path(__file__).parents[3]


class Packed(Struct, frozen=True):
    """A pack in its store."""

    url: str
    contents: Contents
    uploaded: bool
    """Whether this call uploaded it; otherwise the store had it."""

    @property
    def line(self) -> str:
        """The result in one line, for people."""
        size = formatting.size(self.contents.size)
        summary = f"{formatting.count(len(self.contents.packages), 'package')}, {size} unpacked"
        outcome = f"packed {summary}, to" if self.uploaded else f"nothing to upload, {summary}:"
        names = {package.partition(" ")[0] for package in self.contents.packages}
        ringless = "tensorflow" in names and "horovod" not in names
        return f"{outcome} {self.url}{'; without Horovod, see make horovod' if ringless else ''}"


def usual_folder() -> str:
    """The default folder of packs: below the user's home in HDFS."""
    return f"hdfs:///user/{user({})}/.sparktrain/packs"


def store_of(folder: str | None) -> Store:
    """The store of packs: in `folder`, a path or URL, or the usual one. Raises SpecError, and OSError."""
    return open_store(StoreAddress(folder or usual_folder(), timeout_s=STORE_TIMEOUT_S))


def plan(requirements: Sequence[str] = ()) -> Contents:
    """The contents of a pack: this Python, and the packages of `requirements` with what they require, or all packages.

    Blocks on the disk for some seconds. Raises SpecError for a Python or package that cannot be packed.
    """
    python = interpreter.base()
    packages = chosen(installed(), requirements)
    parts = [interpreter.files(python), *(_files_of(package, python.site) for package in packages)]
    return contents(parts, packages)


def pack(requirements: Sequence[str], folder: str | None, on_progress: Callable[[int, int], None]) -> Packed:
    """Put the pack of `plan` into the store of `folder`, unless the store has it. Blocks on disk and store.
    Raises SpecError, and OSError from the store."""
    store = store_of(folder)
    planned = plan(requirements)
    uploaded = pack_archive.publish(store, planned, on_progress)
    return Packed(store.where(planned.archive), planned, uploaded)


def _files_of(package: Distribution, site: str) -> Iterator[PackEntry]:
    if package.metadata["Name"] == _DISTRIBUTION and is_editable(package):
        yield from _checkout(package, site)
    else:
        yield from files_of(package, site)


def _checkout(package: Distribution, site: str) -> Iterator[PackEntry]:
    """The files of sparktrain itself, where this process runs it from a checkout."""
    yield from tree(_PACKAGE, f"{site}/{_DISTRIBUTION}")
    for path in package.files or ():
        if path.name in ("METADATA", "entry_points.txt") and path.parent.name.endswith(".dist-info"):
            yield file_entry(f"{site}/{path}", Path(str(package.locate_file(path))))


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
