"""TensorBoard over the event files of a run, in a process of its own that ends with this one."""

import logging
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol

from sparktrain.board.board_process import port_of_environment, start_process
from sparktrain.board.board_settings import BoardSettings
from sparktrain.board.event_mirror import EventMirror
from sparktrain.errors import SpecError
from sparktrain.store.base import Store
from sparktrain.store.held_folders import HeldFolder, hold
from sparktrain.threads import spawn
from sparktrain.webserve.server_process import last_line, listening_on

_CLOSE_S = 5.0

logger = logging.getLogger("sparktrain")


class ExtraEvents(Protocol):
    """Writes event files of its own for a board."""

    def follow(self, target: Path, over: threading.Event) -> None:
        """Write files beneath the folder `target` until `over` is set. Blocks, in a thread of its own."""
        ...


class Board:
    """A TensorBoard that serves, with the thread that copies events for it. Any thread may call its methods.

    The process ends by `close`, and with this process, however that ends.
    """

    def __init__(self, url: str, process: "subprocess.Popen[bytes]", folder: HeldFolder, log: IO[bytes]) -> None:
        """Use `Board.start`."""
        self.url = url
        """Where a browser finds it, with its token."""
        self._process = process
        self._folder = folder
        self._log = log
        self._over = threading.Event()

    @classmethod
    def start(
        cls,
        store: Store,
        folder: str,
        *,
        bind: str = "127.0.0.1",
        host: str = "localhost",
        port: int | None = None,
        feed: ExtraEvents | None = None,
    ) -> "Board":
        """Serve the event files beneath `folder` of `store`, such as the folder of a run. Returns within a second.

        A browser that comes earlier waits for TensorBoard's start, some 3 s. New events appear within some 10 s.

        Args:
            store: where the run is; it is read in a thread of this process.
            folder: the run's folder in it, or any other folder; empty for all of the store.
            bind: the address to listen on.
            host: the name of this machine in the URL.
            port: the port; by default that of the variable TENSORBOARD_PORT, or any free one.
            feed: writes more event files, such as those of the trials' reports.

        Raises:
            SpecError: the package tensorboard is missing, or the port cannot be had.
            OSError: the process cannot start.
        """
        check_tensorboard()
        listening = _listening(bind, port)
        token = secrets.token_urlsafe(24)
        with listening:
            number = listening.getsockname()[1]
            events = hold("board")
            target = str(events.path)
            settings = BoardSettings(target, listening.fileno(), number, token, folder or store.where())
            log = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
            try:
                process = start_process(settings, log)
            except BaseException:
                log.close()
                events.close()
                raise
        board = cls(f"http://{host}:{number}/?token={token}", process, events, log)
        mirror = EventMirror(store, folder, Path(target))
        spawn(lambda: mirror.follow(board._over), "sparktrain-board-events")
        if feed is not None:
            spawn(lambda: feed.follow(Path(target), board._over), "sparktrain-board-feed")
        spawn(board._watch, "sparktrain-board-watch")
        return board

    def __enter__(self) -> "Board":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wait(self) -> None:
        """Wait until the process has ended. Blocks."""
        self._process.wait()

    def close(self) -> None:
        """End the process and remove the copied events. Blocks for 5 s at most; a second call does nothing."""
        self._over.set()
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended
            self._process.stdin.close()
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.close()

    def _watch(self) -> None:
        """Log an end of the process without a call of `close`."""
        code = self._process.wait()
        if not self._over.is_set():
            self._over.set()
            logger.warning("TensorBoard has ended, with exit code %d%s", code, last_line(self._log))
        self._log.close()


def check_tensorboard(is_wanted: bool = True) -> bool:
    """Check that this process can start TensorBoard, where `is_wanted`, and return that. Raises SpecError."""
    if is_wanted and find_spec("tensorboard") is None:
        raise SpecError(
            "tensorboard is not installed beside sparktrain in this driver's Python "
            f"({sys.executable}), and TensorFlow does not bring it: pip install 'sparktrain[tensorboard]'"
        )
    return is_wanted


def _listening(bind: str, port: int | None) -> socket.socket:
    """A socket that listens. Raises SpecError."""
    return listening_on(bind, *((port, "port") if port is not None else port_of_environment()))
