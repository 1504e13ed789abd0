"""A pack as a file in a store, built during the upload, and once for each content."""

import gzip
import tarfile
from collections.abc import Callable
from io import BufferedWriter, BytesIO, RawIOBase
from pathlib import PurePosixPath
from typing import Any

from sparktrain.driver.submitted_jobs.env_pack.contents import Contents, PackEntry, bytecode
from sparktrain.store.base import PIECE_BYTES, NewFile, Store

_TIME = 315532800
"""The time of every file, in seconds since 1970: the first that zip files can have."""
_COMPRESSION = 1
"""The level of gzip: a third more bytes than the default, in a third of the time."""


def publish(store: Store, pack: Contents, on_progress: Callable[[int, int], None]) -> bool:
    """Put the pack into the store under its name: True when this call uploaded it, False when it had it or another
    process was faster. Blocks; `on_progress` gets how many bytes were read, and how many there are. Raises OSError."""
    if store.exists(pack.archive):
        return False
    try:
        file = store.create(pack.archive)
    except FileExistsError:
        return False
    try:
        write(file, pack, on_progress)
        file.publish()
    except FileExistsError:
        file.discard()
        return False
    except BaseException:
        file.discard()
        raise
    return True


def write(file: NewFile, pack: Contents, on_progress: Callable[[int, int], None]) -> None:
    """Write the archive: the same bytes for the same files. Blocks; raises as `NewFile.write`."""
    total = pack.size
    done = 0
    out: Any = BufferedWriter(_Raw(file), PIECE_BYTES)
    with (
        # A header without name and time: two uploads of one pack have the same bytes, so that it does not matter which
        # is first.
        gzip.GzipFile("", "wb", _COMPRESSION, out, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for entry in pack.entries:
            done += _add(archive, entry)
            on_progress(done, total)
    out.flush()


class _Raw(RawIOBase):
    """A new file of a store, with the interface of the standard library's files."""

    def __init__(self, file: NewFile) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._file.write(bytes(data))
        return len(data)


def _add(archive: tarfile.TarFile, entry: PackEntry) -> int:
    """How many bytes of the pack's size these entries have."""
    if entry.link:
        info = _info(entry.name, 0, executable=True)
        info.type = tarfile.SYMTYPE
        info.linkname = entry.identity
        archive.addfile(info)
        return 0
    if entry.source is None:
        archive.addfile(_info(entry.name, len(entry.data), executable=entry.executable), BytesIO(entry.data))
        return len(entry.data)
    if entry.source.suffix == ".py" and (compiled := bytecode(entry.source)) is not None:
        name, content = compiled
        folder = PurePosixPath(entry.name).parent
        archive.addfile(_info(f"{folder}/{name}", len(content), executable=False), BytesIO(content))
    with entry.source.open("rb") as content_file:
        size = entry.source.stat().st_size
        archive.addfile(_info(entry.name, size, executable=entry.executable), content_file)
    return size


def _info(name: str, size: int, *, executable: bool) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = size
    info.mtime = _TIME
    info.mode = 0o755 if executable else 0o644
    return info
