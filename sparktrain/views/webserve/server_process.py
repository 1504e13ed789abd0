"""A process that serves the pages of a run to browsers, seen from its parent: its socket, its tokens, and its end."""

import logging
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import msgspec
from msgspec import Struct

from sparktrain.base.threads import spawn
from sparktrain.errors import SpecError

_ANYWHERE = ("", "0.0.0.0", "::")
"""Addresses that stand for every address of this machine."""
_CLOSE_S = 5.0
_TAIL_BYTES = 4096
_ROOT = str(Path(__file__).parents[3])

logger = logging.getLogger("sparktrain")


class ServerEndpoint(Struct, frozen=True, kw_only=True):
    """Where a process serves, and to whom: the first line of its standard input, as JSON."""

    descriptor: int
    """The inherited socket, which listens already."""
    port: int
    token: str
    """Who has it may look, and may do what the page has buttons for."""
    reader: str
    """Who has this token may look."""


class ServerProcess:
    """Base of what serves pages. Any thread may call its methods.

    The process has a session of its own: Ctrl-C in a terminal goes to its parent, which closes it. It ends by `close`,
    and with its parent, however that ends.
    """

    module: ClassVar[str]
    """What the process runs: the package with its `__main__`."""
    subject: ClassVar[str]
    """What it serves, as messages name it."""

    def __init__(self, settings: Struct, listening: socket.socket, host: str, reads_lines: bool = False) -> None:
        """Start the process, which serves on `listening`; the caller closes its copy of that. Raises OSError.

        `settings` are what its module needs beside the endpoint, and `host` is the name of this machine in the URLs.
        With `reads_lines` its standard output is a pipe, for `read_lines`, and otherwise part of its log.
        """
        port = listening.getsockname()[1]
        endpoint = ServerEndpoint(
            descriptor=listening.fileno(), port=port, token=secrets.token_urlsafe(24), reader=secrets.token_urlsafe(24)
        )
        self.url = f"http://{host}:{port}/?token={endpoint.token}"
        """Where a browser finds it, with its token."""
        self.reader_url = f"http://{host}:{port}/?token={endpoint.reader}"
        """The same, with the token that may only look."""
        self._over = threading.Event()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - `_watch` closes it
        try:
            self._process = self._start(endpoint, settings, reads_lines)
        except BaseException:
            self._log.close()
            raise
        spawn(self._watch, f"{self.module}-watch")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wait(self) -> None:
        """Wait until the process has ended. Blocks."""
        self._process.wait()

    def close(self) -> None:
        """End the process. Blocks for 5 s at most; a second call does nothing."""
        self._over.set()
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended
            self._process.stdin.close()
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def read_lines(self, lines: Iterable[bytes]) -> None:
        """Take what the process writes to its standard output, until it ends; in a thread of its own."""

    def _start(self, endpoint: ServerEndpoint, settings: Struct, reads_lines: bool) -> "subprocess.Popen[bytes]":
        # `-P` keeps the working directory out of the path, by which the parent may have found sparktrain.
        path = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", self.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if reads_lines else self._log.fileno(),
            stderr=self._log.fileno(),
            env={**os.environ, "PYTHONPATH": path},
            # It listens already: a browser that comes before the application is ready waits for it, and gets no error.
            pass_fds=[endpoint.descriptor],
            start_new_session=True,
        )
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, which `_watch` reports
            process.stdin.write(msgspec.json.encode(endpoint) + b"\n" + msgspec.json.encode(settings) + b"\n")
            process.stdin.flush()
        return process

    def _watch(self) -> None:
        """Log an end of the process without a call of `close`."""
        if self._process.stdout is not None:
            with self._process.stdout as lines:
                self.read_lines(lines)
        code = self._process.wait()
        if not self._over.is_set():
            self._over.set()
            logger.warning("%s has ended, with exit code %d%s", self.subject, code, self._last_line())
        self._log.close()

    def _last_line(self) -> str:
        """The last line of the log, as the end of a message."""
        descriptor = self._log.fileno()
        start = max(0, os.fstat(descriptor).st_size - _TAIL_BYTES)
        lines = os.pread(descriptor, _TAIL_BYTES, start).decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f": {last}" if last else ""


def listening_on(bind: str, number: int, subject: str) -> socket.socket:
    """A socket that listens on a port, 0 for any free one; `subject` names the port. Raises SpecError."""
    if not 0 <= number < 2**16:
        raise SpecError(f"{subject} ({number}) must be a port below 65536, or 0 for any free one")
    try:
        family = socket.getaddrinfo(bind or None, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((bind, number), family=family)
    except OSError as error:
        raise SpecError(
            f"{subject} ({number}) cannot be had on {bind or 'this machine'}: {error.strerror or error}; "
            "choose another, or 0 for any free one"
        ) from error


def host_in_links(bind: str) -> str:
    """The name of this machine in links to what listens on the address `bind`. Blocks on DNS."""
    if bind in _ANYWHERE:
        return socket.getfqdn()
    return "localhost" if bind.startswith("127.") else bind
