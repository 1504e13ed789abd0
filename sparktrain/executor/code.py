"""Stores the user's code on an executor in local files, by digest; the agent never loads it."""

import hashlib
import os
import zipfile
from io import BytesIO
from pathlib import Path
from threading import Lock
from uuid import uuid4

from sparktrain.errors import ProtocolError
from sparktrain.protocol.messages import Code
from sparktrain.protocol.pipe_messages import LocalCode
from sparktrain.store.folder_removal import discard, remove

MOST_CODES = 24
"""An agent serves one run at a time; a member of the run before may still be ending."""

_FUNCTION = "function"
_MODULES = "modules"
_UNFINISHED = "unfinished-"
_KEEPING = Lock()
"""Held by the one agent of this process that writes to the folder; agents follow each other there."""


def keep(code: Code, folder: Path) -> LocalCode:
    """Write `code` below `folder`, once for each digest; the newest `MOST_CODES` stay. Blocks on the disk; any thread.

    Raises ProtocolError if the bytes do not match the digest of `code`, OSError if the disk fails.
    """
    digest = hashlib.sha256(code.function + code.archive).hexdigest()
    if digest != code.digest:
        raise ProtocolError(f"code with digest {digest} came as {code.digest}: it was corrupted on its way")
    home = folder / digest
    with _KEEPING:
        if not home.exists():
            _write(code, home)
        os.utime(home)
        _free(home)
    return LocalCode(str(home / _FUNCTION), code.by_reference, (str(home / _MODULES),) if code.archive else ())


def _write(code: Code, home: Path) -> None:
    """Write all of the code or nothing: under another name first, then rename it."""
    unfinished = home.with_name(f"{_UNFINISHED}{uuid4().hex}")
    try:
        unfinished.mkdir(parents=True)
        if code.archive:
            with zipfile.ZipFile(BytesIO(code.archive)) as archive:
                archive.extractall(unfinished / _MODULES)
        (unfinished / _FUNCTION).write_bytes(code.function)
        unfinished.rename(home)
    finally:
        remove(unfinished)  # nothing is there after the rename


def _free(newest: Path) -> None:
    """Remove the code with the oldest use: a pool may serve hundreds of runs.

    The newest stays whatever its time is: two calls may come within one tick of the file system's clock.
    """
    folders = [path for path in newest.parent.iterdir() if path != newest and not path.name.startswith(_UNFINISHED)]
    for folder in sorted(folders, key=lambda folder: folder.stat().st_mtime_ns)[: 1 - MOST_CODES]:
        discard(folder)
