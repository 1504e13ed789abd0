"""Delegation tokens of this process: its clients of HDFS find them in a file, which the environment names."""

import os
from pathlib import Path
from threading import Lock

VARIABLE = "HADOOP_TOKEN_FILE_LOCATION"
"""What names the file: clients know no other way. On YARN it is set from the start."""

_NAME = "hdfs-tokens"


class _Changes:
    """How often this process has got other tokens."""

    def __init__(self) -> None:
        self.count = 0
        self.lock = Lock()


_changes = _Changes()


def changes() -> int:
    """How often this process has got other tokens: a client that was made before has used others. Never blocks."""
    return _changes.count


def has_token_file() -> bool:
    """Whether the environment names a file with tokens. Never blocks."""
    return VARIABLE in os.environ


class TokenFile:
    """The file in which this process has its tokens, once there are any; of the last such file its clients know.

    May be used by any thread.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` is on a local disk, and nobody else's."""
        self._path = folder / _NAME
        self._before: str | None = None
        self._kept = False

    def keep(self, content: bytes) -> None:
        """Have clients use the tokens of a Hadoop token file with this content, and no others, from their next call on.

        Nobody but this user can read the file. Blocks for the local disk. Raises OSError, and changes nothing then.
        """
        with _changes.lock:
            _write(self._path, content)
            if not self._kept:
                self._before, self._kept = os.environ.get(VARIABLE), True
            if os.environ.get(VARIABLE) != os.fspath(self._path):  # a native thread may be reading the environment
                os.environ[VARIABLE] = os.fspath(self._path)
            _changes.count += 1

    def close(self) -> None:
        """Delete the file, and have clients use what they used before. Again, or before `keep`: does nothing."""
        with _changes.lock:
            if not self._kept:
                return
            self._kept = False
            self._path.unlink(missing_ok=True)
            if os.environ.get(VARIABLE) == os.fspath(self._path):
                del os.environ[VARIABLE]
                if self._before is not None:
                    os.environ[VARIABLE] = self._before
            _changes.count += 1


def _write(path: Path, content: bytes) -> None:
    """Replace the file as a whole: a client may read it at any time."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
    new.replace(path)
