"""The manifest of a dataset: its files, and the groups of rows in them. Written once; members compute with it alone."""

import hashlib
from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from sparktrain.base import formatting
from sparktrain.base.clock import time_of_day
from sparktrain.base.decoding import from_json
from sparktrain.config.store_address import StoreAddress
from sparktrain.datasets.columns import Column
from sparktrain.datasets.folder_values import as_before
from sparktrain.errors import DataError

_SHOWN = 3
"""So many files of each side are shown."""
VERSION = 1

FileFormat = Literal["groups", "parquet", "arrow", "tfrecord"]
"""`groups`: files that sparktrain has written. The others are files of the user, which are read where they are."""


class Group(Struct, frozen=True, array_like=True):
    """Consecutive rows of a file: the unit of reading, caching and shuffling."""

    offset: int
    """Of its bytes in the file."""
    size: int
    """Number of bytes from there on that a reader needs, before decoding."""
    rows: int
    checksum: int | None = None
    """CRC-32C of these bytes; None where the file has checksums of its own, or none."""


class DataFile(Struct, frozen=True):
    """One file of a dataset."""

    path: str
    """In its store: that of `Manifest.root`."""
    size: int
    """In bytes."""
    groups: tuple[Group, ...]
    origin: str = ""
    """Where its rows come from, for messages: `partition 3`."""
    modified: float = 0.0
    """Of a file of the user: seconds since 1970, to recognize a file that was replaced."""
    footer: int = 0
    """Of a Parquet or Arrow file: size in bytes of the footer at its end, which every group needs."""
    version: str = ""
    """Of a file of the user: see `FileInfo.version`."""
    footer_checksum: int | None = None
    """CRC-32C of the footer, or of the schema at the start of a stream: writers may keep size and time. None for
    formats without either."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(group.rows for group in self.groups)


class Manifest(Struct, frozen=True, kw_only=True):
    """What a dataset consists of. Row i of the dataset is row i of all groups in the order of the files."""

    version: int = VERSION
    name: str
    """The user's name for it, such as `train`."""
    format: FileFormat
    columns: tuple[Column, ...]
    """Those that members see."""
    files: tuple[DataFile, ...]
    root: str = ""
    """URL of the store with the files; empty: the store of the run."""
    schema: bytes = b""
    """The Arrow schema of the groups of the format `groups`, as IPC has it."""
    pad: dict[str, int] = {}
    """Length to which lists of a column are filled with zeros."""
    on_error: Literal["raise", "skip"] = "raise"
    """What a reader does with a corrupt group of a user's file."""
    compression: str = ""
    """Of TFRecord files: empty, `gzip` or `zlib`."""
    features: dict[str, str] = {}
    """Of TFRecord files with `tf.train.Example`: see `sparktrain.data.tfrecord`."""

    @property
    def rows(self) -> int:
        """Number of rows of the dataset."""
        return sum(file.rows for file in self.files)

    def encode(self) -> bytes:
        """The manifest as it is stored: the same bytes for the same manifest."""
        return msgspec.json.encode(self)

    @property
    def digest(self) -> str:
        """Identifies the content: 32 hexadecimal digits, the same as those of older versions."""
        return digest_of(replace(self, columns=tuple(map(as_before, self.columns))).encode())


class DataRef(Struct, frozen=True):
    """Where a member finds a dataset of its run."""

    store: StoreAddress
    path: str
    """Of the manifest."""
    digest: str
    files: StoreAddress | None = None
    """The store with the files, where it is not that of the run."""


class MemberData(Struct, frozen=True):
    """The datasets of a run, and where a host keeps what it has read of them."""

    sets: dict[str, DataRef] = {}
    cache_dir: str | None = None
    """None: the temporary directory of the host."""
    cache_bytes: int | None = None
    """None: a quarter of the free disk."""


def digest_of(content: bytes) -> str:
    """The digest of an encoded manifest."""
    return hashlib.sha256(content).hexdigest()[:32]


def decode(content: bytes, where: str, path: str, digest: str | None = None) -> Manifest:
    """The manifest in `content`, which was read from `path`; `where` is its full name, for people.

    Files that sparktrain has written are beside it, whatever name the run directory had when they were written.
    Raises DataError when it is corrupt, or of a newer version.
    """
    try:
        manifest = from_json(content, Manifest)
    except msgspec.MsgspecError as error:
        raise DataError(f"{where} is no manifest of a dataset ({error}): put a copy back") from error
    if manifest.version != VERSION:
        raise DataError(
            f"{where} has version {manifest.version}, and this sparktrain reads version {VERSION}: use the newer "
            "sparktrain that wrote it"
        )
    if digest is not None and (content_digest := digest_of(content)) != digest:
        raise DataError(
            f"{where} is corrupt: its digest is {content_digest}, and {digest} was written; put a copy back"
        )
    if manifest.root:
        return manifest
    folder = path.rpartition("/")[0]
    files = (replace(file, path=f"{folder}/{file.path.rpartition('/')[2]}") for file in manifest.files)
    return replace(manifest, files=tuple(files))


def changed_files(name: str, before: Manifest, now: Manifest) -> Iterator[str]:
    """A line for each side of each file of dataset `name` that differs, in order, and how many others do.

    Nothing where other things of the dataset differ, such as its options.
    """
    if before.root != now.root:
        yield from (f"- {name}: {before.root}", f"+ {name}: {now.root}")
        return
    sides = {sign: {file.path: file for file in manifest.files} for sign, manifest in (("-", before), ("+", now))}
    old, new = sides.values()
    differ = [path for path in dict.fromkeys((*old, *new)) if old.get(path) != new.get(path)]
    shown = {path for side in (old, new) for path in [file_path for file_path in differ if file_path in side][:_SHOWN]}
    for path in [file_path for file_path in differ if file_path in shown]:
        yield from (f"{sign} {name}: {_described(side[path])}" for sign, side in sides.items() if path in side)
    if len(differ) > len(shown):
        yield f"... and {formatting.count(len(differ) - len(shown), 'more file')} of {name}"


def _described(file: DataFile) -> str:
    return f"{file.path} ({formatting.size(file.size)} in {file.rows:,} rows, of {time_of_day(file.modified)})"
