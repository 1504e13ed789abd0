"""Keeps what sources import in this process and on the local disk, by the digest of their content.

The sources of a large package take seconds to parse, in each driver that sends a function of it. A file of the user's
cache folder has the results of all drivers with this Python and this version of the analysis. It appears by rename, so
that it is complete; of two drivers that write at the same time, one adds nothing. Whatever is wrong with it, the
sources are parsed.
"""

import functools
import hashlib
import logging
import os
import re
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import msgspec

from sparktrain.base.decoding import from_msgpack
from sparktrain.store.private_folder import file_system_time
from sparktrain.usercode import environment_writes, source_imports
from sparktrain.usercode.source_imports import Imports, imports_of_source

SMALL_BYTES = 100_000
"""Sources that parse in a moment: the file is written for no less."""
LIMIT_BYTES = 8_000_000
"""The most that the file has. Results that this process used come first."""
MOST_FILES = 4
"""Files of other versions stay beside this one, in all so many: those that were written last."""

_SUFFIX = ".imports"
_IN_WORK = ".new"
_FILE = re.compile(r".+-[0-9a-f]{16}\.imports")
_DRAFT = re.compile(r"tmp[a-z0-9_]{8}\.new")
_ABANDONED_S = 3600.0
_CHECK_BYTES = 32
_IN_MEMORY = 8192

logger = logging.getLogger("sparktrain")


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """The imports of one source."""

    modules: list[str]
    texts: list[str]
    relative: list[str]
    dotted: list[str]
    variables: list[str]


class ImportCache:
    """What sources import. Any thread may use it."""

    def __init__(self, file: Path | None) -> None:
        """None keeps results in this process alone."""
        self._file = file
        self._lock = threading.Lock()
        self._used: dict[str, Imports] = {}
        self._stored: dict[str, msgspec.Raw] | None = None
        self._parsed_bytes = 0
        """Of sources that the file lacks."""

    def imports_of(self, source: bytes) -> Imports:
        """See `imports_of_source`. Read-only. Blocks on the local disk once, for a moment. Raises nothing."""
        digest = hashlib.sha256(source).hexdigest()
        with self._lock:
            imports = self._used.get(digest) or self._read(digest)
            if imports is None:
                imports = imports_of_source(source)
                self._parsed_bytes += len(source)
            while len(self._used) >= _IN_MEMORY:
                del self._used[next(iter(self._used))]
            self._used[digest] = imports
            return imports

    def save(self) -> None:
        """Write the results that the file lacks, where they took long. Blocks on the local disk. Raises nothing."""
        with self._lock:
            if self._parsed_bytes < SMALL_BYTES or self._file is None:
                return
            self._parsed_bytes = 0
            try:
                _write(self._file, self._payload(_load(self._file)))
                _tidy(self._file)
            except OSError as error:
                logger.debug("%s cannot be written (%s): each process parses the sources", self._file, error)

    def _read(self, digest: str) -> Imports | None:
        if self._stored is None:
            self._stored = _load(self._file) if self._file is not None else {}
        if (raw := self._stored.get(digest)) is None:
            return None
        try:
            stored = from_msgpack(raw, _Stored)
        except msgspec.DecodeError:
            return None
        return Imports(
            set(stored.modules), set(stored.texts), set(stored.relative), set(stored.dotted), set(stored.variables)
        )

    def _payload(self, others: dict[str, msgspec.Raw]) -> bytes:
        """The results that this process used, and those of other processes, as far as they fit."""
        mine = {digest: msgspec.Raw(msgspec.msgpack.encode(_stored(imports))) for digest, imports in self._used.items()}
        payload = dict[str, msgspec.Raw]()
        total = 0
        for digest, raw in (mine | others).items():
            size = len(digest) + len(memoryview(raw))
            if total + size <= LIMIT_BYTES:
                payload[digest] = raw
                total += size
        return msgspec.msgpack.encode(payload)


def _stored(imports: Imports) -> _Stored:
    return _Stored(
        sorted(imports.modules),
        sorted(imports.texts),
        sorted(imports.relative),
        sorted(imports.dotted),
        sorted(imports.variables),
    )


@functools.cache
def shared() -> ImportCache:
    """The cache of this process."""
    return ImportCache(default_file())


def default_file() -> Path | None:
    """The file of this Python and this version of the analysis in the user's cache folder; None without a home.

    Blocks on the local disk. Raises nothing.
    """
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        parts = (environment_writes.__file__, source_imports.__file__, __file__)
        codes = [Path(str(path)).read_bytes() for path in parts]
    except (OSError, RuntimeError):
        return None
    # The code of the analysis is part of the name: another version finds other imports in the same source.
    digest = hashlib.sha256(b"".join([sys.version.encode(), *codes])).hexdigest()
    tag = sys.implementation.cache_tag
    return folder / "sparktrain" / "imports" / f"{tag}-{digest[:16]}{_SUFFIX}" if folder.is_absolute() else None


def _load(file: Path) -> dict[str, msgspec.Raw]:
    """The results in `file`; none where it is missing, corrupt, or another user's."""
    try:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_uid != os.getuid():
                return {}
            data = opened.read(2 * LIMIT_BYTES)
    except OSError:
        return {}
    check = data[:_CHECK_BYTES]
    payload = data[_CHECK_BYTES:]
    if hashlib.sha256(payload).digest() != check:
        return {}
    try:
        return from_msgpack(payload, dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return {}


def _write(file: Path, payload: bytes) -> None:
    """Put `payload` in the place of `file`, for this user alone. Raises OSError, and leaves no draft then."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Each writer has a name of its own: one that was killed with a common name would block all later ones.
    number, draft = tempfile.mkstemp(_IN_WORK, dir=file.parent)
    try:
        with open(number, "wb") as opened:
            opened.write(hashlib.sha256(payload).digest() + payload)
        os.replace(draft, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise


def _tidy(file: Path) -> None:
    """Remove all but the newest files, and drafts of processes that were killed. Raises OSError."""
    now = file_system_time(file.parent)
    written = {path: path.lstat().st_mtime for path in file.parent.iterdir()}
    drafts = [path for path, at in written.items() if _DRAFT.fullmatch(path.name) and now - at > _ABANDONED_S]
    files = sorted((path for path in written if _FILE.fullmatch(path.name)), key=lambda path: written[path])
    for path in (*files[:-MOST_FILES], *drafts):
        path.unlink(missing_ok=True)
