"""The files of a model on this host: made once for all processes of a user, and kept while one of them uses it."""

import fcntl
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from sparktrain.base.backoff import Backoff, RetryBudget
from sparktrain.base.clock import Clock
from sparktrain.errors import InfraError
from sparktrain.store.folder_removal import remove
from sparktrain.store.private_folder import private_folder

WAIT_S = 900.0
"""How long a process waits until another one has made a file: reading a large model may take minutes."""
_HELD = "held"
_EVICTED = ".gone-"
_PART = ".part-"
_MANAGED_NAME = re.compile(r"(?:\.gone-|\.part-)[0-9a-f]{32}|[0-9a-f]{64}")
"""Names in the folder for models: evicted ones, files that arrive, and the digests of models."""

logger = logging.getLogger("sparktrain")


class ModelFolder:
    """The files of one model. While it is held, no other process evicts them. One thread uses it."""

    def __init__(self, path: Path, held: int, clock: Clock | None = None) -> None:
        self.path = path
        self._held: int | None = held
        self._clock = clock

    @classmethod
    def hold(cls, digest: str, root: Path | None = None, clock: Clock | None = None) -> "ModelFolder":
        """The folder of the model with this digest, held; those that no process holds are deleted.

        Raises OSError when the disk fails.
        """
        root = root if root is not None else models_folder()
        path = root / digest
        while True:
            path.mkdir(mode=0o700, exist_ok=True)
            try:
                held = os.open(path / _HELD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # evicted meanwhile
            try:
                fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if _is_at(held, path / _HELD):
                    break
            except BlockingIOError:
                pass  # another process evicts it, under another name
            os.close(held)
        _evict(root, but=path)
        return cls(path, held, clock)

    def file(self, name: str, make: Callable[[Path], None], intact: Callable[[Path], bool] = lambda path: True) -> Path:
        """The file `name`, which `make` writes to the path that it gets, once for all processes of the host.

        A file that is not `intact` is replaced, with a warning. Blocks while another process makes it, at most
        15 minutes: InfraError then. Raises what `make` raises.
        """
        path = self.path / name
        if path.exists() and intact(path):
            return path
        with self._alone(f"{name}.lock"):
            # All workers of a host map this file: one changed byte was in the predictions of all of them.
            if path.exists() and not intact(path):
                logger.warning("%s is corrupt: it is replaced", path)
                os.rename(path, self.path.parent / f"{_EVICTED}{uuid4().hex}")  # processes that have mapped it keep it
            if not path.exists():
                unfinished = self.path / f"{_PART}{name}"  # what a killed maker has left is overwritten
                try:
                    make(unfinished)
                    os.replace(unfinished, path)
                finally:
                    unfinished.unlink(missing_ok=True)
        return path

    def release(self) -> None:
        """Allow other processes to evict the files. A second call does nothing."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        lock = os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        budget = RetryBudget(WAIT_S, Backoff(0.01, 0.25), self._clock)
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not budget.wait():
                        raise InfraError(
                            f"{self.path / name} is locked for {WAIT_S:g} s by a process that reads the model: end "
                            "that process, or call again"
                        ) from None
            yield
        finally:
            os.close(lock)


def models_folder(temporary: str | None = None) -> Path:
    """The folder for the models of this user on this host, which no other user can read. It outlives processes.

    Raises OSError when none can be made.
    """
    return private_folder(Path(temporary or tempfile.gettempdir()), f"sparktrain-models-{os.getuid()}")


@contextmanager
def arriving(root: Path | None = None) -> Iterator[Path]:
    """An empty file for a model of unknown digest, beside the folders of models. Deleted at the end of the
    block if it is still there, or by the next process that holds a model when this one is killed."""
    path = (root if root is not None else models_folder()) / f"{_PART}{uuid4().hex}"
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield path
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)


def _evict(root: Path, but: Path) -> None:
    """Delete the folders of other models that no process holds, and what killed processes have left.

    What has another name, and what is a symbolic link, is not ours.
    """
    for path in root.iterdir():
        # A file called held, or a link in this folder, once led eviction to what was not ours.
        if path == but or _MANAGED_NAME.fullmatch(path.name) is None or path.is_symlink():
            continue
        if path.name.startswith(_EVICTED):
            _remove(path)
            continue
        locked = path if path.name.startswith(_PART) else path / _HELD
        with suppress(OSError):  # held, evicted by another process, or not ours to delete
            lock = os.open(locked, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(lock, locked):
                    evicted_path = root / f"{_EVICTED}{uuid4().hex}"
                    os.rename(path, evicted_path)
                    _remove(evicted_path)
            finally:
                os.close(lock)


def _remove(path: Path) -> None:
    if path.is_dir():
        remove(path)
    else:
        path.unlink(missing_ok=True)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is still the one at `path`."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), status)
