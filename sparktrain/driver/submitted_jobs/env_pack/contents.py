"""The files of a pack, and the digest that identifies it before it is built."""

import hashlib
import importlib.util
import json
import sys
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution, PackagePath
from pathlib import Path, PurePosixPath

from msgspec import Struct

from sparktrain.errors import SpecError

FORMAT = "1"
"""The version of the format; it grows when the same files would be packed in another way."""

_LEFT_OUT = ("tensorflow/include/",)
"""Headers for compiling custom operations, which nodes do not do: half of TensorFlow's files."""
_HASHED = b"\x01\x00\x00\x00"
"""The flags of bytecode that is never compared with its source: files may be unpacked with any time."""


class PackEntry(Struct, frozen=True, kw_only=True):
    """One file of a pack."""

    name: str
    """The path within the pack."""
    identity: str
    """What changes with the content: a digest, or the target of a link."""
    source: Path | None = None
    """The file with the content; None for `data`."""
    data: bytes = b""
    link: bool = False
    """A symbolic link to `identity`."""
    executable: bool = False


class Contents(Struct, frozen=True):
    """All files of a pack, by name."""

    entries: tuple[PackEntry, ...]
    packages: tuple[str, ...]
    """Names and versions of the packages."""

    @property
    def archive(self) -> str:
        """The name of the archive, which changes with its content."""
        digest = hashlib.sha256(FORMAT.encode())
        for entry in self.entries:
            digest.update(f"\n{entry.name}\0{entry.identity}\0{entry.executable:d}".encode())
        return f"sparktrain-python{sys.version_info.major}.{sys.version_info.minor}-{digest.hexdigest()[:16]}.tar.gz"

    @property
    def size(self) -> int:
        """The size of all files in bytes, without bytecode."""
        return sum(file.source.stat().st_size if file.source is not None else len(file.data) for file in self.entries)


def contents(parts: Iterable[Iterable[PackEntry]], packages: Sequence[Distribution]) -> Contents:
    """The contents with all entries in `parts`; of several with one name, the first."""
    entries: dict[str, PackEntry] = {}
    for part in parts:
        for entry in part:
            entries.setdefault(entry.name, entry)
    versions = tuple(f"{package.metadata['Name']} {package.version}" for package in packages)
    return Contents(tuple(entries[name] for name in sorted(entries)), versions)


def file_entry(name: str, source: Path, *, executable: bool = False) -> PackEntry:
    """An entry for a file, identified by its content. Blocks on the disk."""
    with source.open("rb") as file:
        identity = hashlib.file_digest(file, "sha256").hexdigest()
    return PackEntry(name=name, identity=identity, source=source, executable=executable)


def data_entry(name: str, text: str, *, executable: bool = False) -> PackEntry:
    """An entry for a file with this text."""
    data = text.encode()
    return PackEntry(
        name=name, identity=hashlib.sha256(data).hexdigest(), source=None, data=data, executable=executable
    )


def link_entry(name: str, target: str) -> PackEntry:
    """An entry for a symbolic link."""
    return PackEntry(name=name, identity=target, link=True)


def files_of(package: Distribution, site: str) -> Iterator[PackEntry]:
    """The files that a wheel has installed beside its metadata, for the folder `site` of the pack.

    A file that is as the wheel has brought it is not read: its digest is in the list of the wheel. Programs, which name
    this machine's interpreter, are left out. Raises SpecError for a package that has no such list, or not its files.
    """
    recorded = package.files
    if recorded is None:
        raise SpecError(
            f"package {package.metadata['Name']} cannot be packed, it has no list of its files: install it with pip"
        )
    if is_editable(package):
        raise SpecError(
            f"package {package.metadata['Name']} cannot be packed, it is installed as editable: install it without "
            "--editable, or name the packages that you need with --package"
        )
    listed = _listed_at(package)
    for path in recorded:
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or "__pycache__" in pure.parts:
            continue
        if str(pure).startswith(_LEFT_OUT):
            continue
        source = Path(str(package.locate_file(path)))
        if source.is_file():
            yield _of_wheel(f"{site}/{pure}", source, path, listed)


def tree(folder: Path, name: str) -> Iterator[PackEntry]:
    """All files below `folder` except bytecode, for the folder `name` of the pack. Blocks on the disk."""
    for source in sorted(folder.rglob("*")):
        inside = source.relative_to(folder)
        if source.is_file() and "__pycache__" not in inside.parts:
            yield file_entry(f"{name}/{inside.as_posix()}", source)


def is_editable(package: Distribution) -> bool:
    """Whether the files of an editable installation are elsewhere."""
    origin = package.read_text("direct_url.json")
    return origin is not None and bool(json.loads(origin).get("dir_info", {}).get("editable"))


def bytecode(source: Path) -> tuple[str, bytes] | None:
    """The bytecode of a module: its name in the folder of the source, and its content; None where there is none.

    Python uses it without a check of the source's time, which changes where the pack is unpacked.
    """
    compiled = Path(importlib.util.cache_from_source(str(source), optimization=""))
    try:
        pyc = compiled.read_bytes()
        stat = source.stat()
    except OSError:
        return None
    current = (int(stat.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little") + (stat.st_size & 0xFFFFFFFF).to_bytes(
        4, "little"
    )
    if pyc[:16] != importlib.util.MAGIC_NUMBER + bytes(4) + current:
        return None
    content = pyc[:4] + _HASHED + importlib.util.source_hash(source.read_bytes()) + pyc[16:]
    return f"__pycache__/{compiled.name}", content


def _of_wheel(name: str, source: Path, path: PackagePath, listed: float) -> PackEntry:
    stat = source.stat()
    if path.hash is None or path.hash.mode != "sha256" or path.size != stat.st_size or stat.st_mtime > listed:
        return file_entry(name, source)
    return PackEntry(name=name, identity=urlsafe_b64decode(f"{path.hash.value}==").hex(), source=source)


def _listed_at(package: Distribution) -> float:
    """The time of the wheel's list of files: newer files have changed since."""
    record = next(path for path in package.files or () if path.name == "RECORD")
    return Path(str(package.locate_file(record))).stat().st_mtime
