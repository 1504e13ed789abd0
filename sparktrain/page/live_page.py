"""The live page of a run, in a process of its own that ends with this one."""

import logging
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import IO

import msgspec

from sparktrain.page.page_settings import PageSettings, StopRequest
from sparktrain.threads import spawn
from sparktrain.webserve.server_process import child_environment, last_line, listening_on

_CLOSE_S = 5.0

logger = logging.getLogger("sparktrain")

OnStop = Callable[[int | None], None]
"""Stops a trial by its number, or with None the run. Called in a thread of the page; must not block."""


class LivePage:
    """A page that is served. Any thread may call its methods; the process ends by `close`, and with this process."""

    def __init__(self, url: str, reader_url: str, process: "subprocess.Popen[bytes]", log: IO[bytes]) -> None:
        """Use `LivePage.start`."""
        self.url = url
        """Where a browser finds it, with the token that may stop."""
        self.reader_url = reader_url
        """The same, with the token that may only look."""
        self._process = process
        self._log = log
        self._over = threading.Event()

    @classmethod
    def start(
        cls,
        directory: str,
        *,
        bind: str = "127.0.0.1",
        host: str = "localhost",
        port: int = 0,
        on_stop: OnStop | None = None,
    ) -> "LivePage":
        """Serve the run in `directory`, which may still grow. Returns at once; a browser waits a second for the start.

        Args:
            directory: the run directory, a path or a URL, which the process reads with this one's environment.
            bind: the address to listen on.
            host: the name of this machine in the URL.
            port: the port, 0 for any free one.
            on_stop: what the buttons that stop do; None for a page without them.

        Raises:
            SpecError: the port cannot be had.
            OSError: the process cannot start.
        """
        token = secrets.token_urlsafe(24)
        reader = secrets.token_urlsafe(24)
        with listening_on(bind, port, "port") as listening:
            number = listening.getsockname()[1]
            settings = PageSettings(directory, listening.fileno(), number, token, reader, on_stop is not None)
            log = tempfile.TemporaryFile()  # noqa: SIM115 - `_watch` closes it
            try:
                process = _start(settings, log)
            except BaseException:
                log.close()
                raise
        address = f"http://{host}:{number}/?token="
        page = cls(address + token, address + reader, process, log)
        spawn(lambda: page._attend(on_stop), "sparktrain-page-stops")
        return page

    def __enter__(self) -> "LivePage":
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

    def _attend(self, on_stop: OnStop | None) -> None:
        """Pass requests on, and log an end of the process without a call of `close`."""
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                with suppress(msgspec.MsgspecError):
                    request = msgspec.json.decode(line, type=StopRequest)
                    if on_stop is not None:
                        on_stop(request.trial)
        code = self._process.wait()
        if not self._over.is_set():
            logger.warning("the page has ended, with exit code %d%s", code, last_line(self._log))
        self._log.close()


def _start(settings: PageSettings, log: IO[bytes]) -> "subprocess.Popen[bytes]":
    """Start the process, in a session of its own: Ctrl-C in a terminal goes to this process, which closes the page."""
    # A process of its own, so that browsers cost the driver nothing.
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "sparktrain.page"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log.fileno(),
        env=child_environment(),
        pass_fds=[settings.descriptor],
        start_new_session=True,
    )
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it has ended, which `_attend` reports
        process.stdin.write(msgspec.json.encode(settings) + b"\n")
        process.stdin.flush()
    return process
