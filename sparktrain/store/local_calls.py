"""The calls of a store in a directory: retried while their error may be transient."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sparktrain.base.backoff import Backoff, RetryBudget
from sparktrain.base.clock import Clock
from sparktrain.errors import StoreError, StoreRefusedError, StoreTimeoutError

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0

T = TypeVar("T")

CAUSES = {
    errno.EACCES: ("permission denied for {file}", "choose another directory, or let this user write there"),
    errno.EPERM: ("permission denied for {file}", "choose another directory, or let this user write there"),
    errno.EROFS: ("the file system is mounted read-only", "choose a directory elsewhere"),
    errno.ENOSPC: ("the disk is full", "free some space, or choose a directory on another disk"),
    errno.EDQUOT: ("the disk quota is used up", "free some space, or choose a directory on another disk"),
    errno.EEXIST: ("{file} is a file, not a directory", "choose another directory, or move that file away"),
    errno.ENAMETOOLONG: ("its path is too long", "choose a shorter one"),
    errno.EMFILE: ("this process has too many files open", "raise `ulimit -n`"),
    errno.ENFILE: ("this host has too many files open", "see which process has them open"),
    errno.ESTALE: ("the file server no longer knows the file (ESTALE)", "see whether it was mounted again"),
    errno.EIO: ("{problem}", "see the kernel's log for the disk's error, or choose another directory"),
    errno.EOPNOTSUPP: (
        "its file system has no hard links, which make a file appear at once and only once",
        "choose a directory on a local disk or NFS",
    ),
}
"""Cause and next step by the error's number."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Often transient; if it persists, a person must act."""
_TRANSIENT = _FULL | {
    errno.EAGAIN,
    errno.EBUSY,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOBUFS,
    errno.ENOLCK,
    errno.ENOMEM,
    errno.ENOTCONN,
    errno.EREMOTEIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
}
"""Errors of a disk, a file server or a process short of a resource that may pass within a moment."""
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP, errno.EOPNOTSUPP})
"""Persists until a person acts."""
_CONTRACT_ERRORS = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)


class LocalCall:
    """One call of a store: its steps share one deadline. A step is short, unless the file system itself hangs."""

    def __init__(self, file: Path, seconds: float, clock: Clock | None = None) -> None:
        self._file = file
        self._seconds = seconds
        self._retries = RetryBudget(seconds, Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S), clock)

    def ask(self, step: Callable[[], T]) -> T:
        """The result of `step`, which is retried from its start while its error may be transient.

        Raises FileNotFoundError and the like unchanged, StoreRefusedError for what persists, and StoreError otherwise.
        """
        while True:
            try:
                return step()
            except (*_CONTRACT_ERRORS, StoreError):
                raise
            except OSError as error:
                if error.errno not in _TRANSIENT:
                    raise self.failed(error) from error
                self._wait(error)

    def failed(self, error: OSError) -> StoreError:
        """The error of a step that is not retried."""
        kind = StoreRefusedError if error.errno in _REFUSED | _FULL else StoreError
        return self._error(kind, error, "")

    def _wait(self, error: OSError) -> None:
        if not self._retries.wait():
            kind = StoreRefusedError if error.errno in _FULL else StoreTimeoutError
            raise self._error(kind, error, f", for {self._seconds:g} s") from error

    def _error(self, kind: type[StoreError], error: OSError, since: str) -> StoreError:
        cause, step = explained(error, self._file)
        return kind(error.errno, f"{cause}{since}; {step}", str(self._file))


def explained(error: OSError, file: Path) -> tuple[str, str]:
    """Cause and next step of an error on `file`, or on the file that the error names."""
    cause, step = CAUSES.get(error.errno or 0, ("{problem}", "choose another directory"))
    return cause.format(file=error.filename or file, problem=error.strerror or error), step
