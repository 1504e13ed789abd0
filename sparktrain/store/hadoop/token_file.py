"""Delegation tokens of this process, in a file that the environment names to its HDFS clients."""

import os
from pathlib import Path
from threading import Lock

from sparktrain.store.hadoop.token_storage import merged

VARIABLE = "HADOOP_TOKEN_FILE_LOCATION"
"""The variable with the path of the file: clients know no other way. YARN sets it from the start."""

_NAME = "hdfs-tokens"


class _Changes:
    """Counts the changes of this process' tokens."""

    def __init__(self) -> None:
        self.count = 0
        self.lock = Lock()


_changes = _Changes()


def changes() -> int:
    """The number of changes of this process' tokens: a client from before a change has old ones. Never blocks."""
    return _changes.count


def has_token_file() -> bool:
    """Whether the environment names a token file. Never blocks."""
    return VARIABLE in os.environ


def token_variables() -> dict[str, str]:
    """The variable for a process that uses HDFS in place of this one; empty where there are no tokens. Never blocks."""
    return {VARIABLE: os.environ[VARIABLE]} if has_token_file() else {}


class TokenFile:
    """The file with this process' tokens, once there are any. Clients use the newest such file.

    Used by any thread.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` is on a local disk, and only this process uses it."""
        self._path = folder / _NAME
        self._before: str | None = None
        self._in_use = False
        self._contents: dict[str, bytes] = {}

    def keep(self, content: bytes, owner: str = "") -> None:
        """Make clients use the tokens in `content`, a Hadoop token file, from their next call on.

        They replace those that this `owner` has passed before, and are used beside those of other owners.

        Only this user can read the file. Blocks on the local disk. Raises OSError, and changes nothing then.
        """
        with _changes.lock:
            contents = {name: self._contents[name] for name in self._contents if name != owner} | {owner: content}
            _write(self._path, merged(contents.values()) if len(contents) > 1 else content)
            self._contents = contents
            if not self._in_use:
                self._before = os.environ.get(VARIABLE)
                self._in_use = True
            if os.environ.get(VARIABLE) != os.fspath(self._path):  # a native thread may be reading the environment
                os.environ[VARIABLE] = os.fspath(self._path)
            _changes.count += 1

    def close(self) -> None:
        """Delete the file, and restore the tokens from before `keep`. A second call does nothing."""
        with _changes.lock:
            if not self._in_use:
                return
            self._in_use = False
            self._contents.clear()
            self._path.unlink(missing_ok=True)
            if os.environ.get(VARIABLE) == os.fspath(self._path):
                del os.environ[VARIABLE]
                if self._before is not None:
                    os.environ[VARIABLE] = self._before
            _changes.count += 1


def _write(path: Path, content: bytes) -> None:
    """Replace the file atomically: a client may read it at any time."""
    new_path = path.with_suffix(".new")
    new_path.unlink(missing_ok=True)
    descriptor = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
    new_path.replace(path)
