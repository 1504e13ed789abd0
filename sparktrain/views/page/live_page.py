"""A live page, in a process of its own that ends with this one, so that browsers cost the driver nothing."""

import socket
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec

from sparktrain.base.decoding import from_json
from sparktrain.views.page.page_settings import PageSettings, StopRequest
from sparktrain.views.webserve.server_process import ServerProcess, listening_on

OnStop = Callable[[int | None], None]
"""Stops a trial by its number, or with None the run. Called in a thread of the page; must not block."""


class LivePage(ServerProcess):
    """A page that is served."""

    module = "sparktrain.views.page"
    subject = "the page"

    def __init__(self, listening: socket.socket, host: str, directory: str, on_stop: OnStop | None) -> None:
        """Use `LivePage.start`."""
        self._on_stop = on_stop
        settings = PageSettings(directory=directory, stops=on_stop is not None)
        super().__init__(settings, listening, host, reads_lines=True)

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
        """Serve the run in `directory`, or the runs in it, which may grow. Returns at once; a browser waits a second.

        Args:
            directory: a path or a URL, which the process reads with this one's environment.
            bind: the address to listen on.
            host: the name of this machine in the URL.
            port: the port, 0 for any free one.
            on_stop: what the buttons that stop do; None for a page without them.

        Raises:
            SpecError: the port cannot be had.
            OSError: the process cannot start.
        """
        with listening_on(bind, port, "port") as listening:
            return cls(listening, host, directory, on_stop)

    def read_lines(self, lines: Iterable[bytes]) -> None:
        """Pass requests on."""
        for line in lines:
            with suppress(msgspec.MsgspecError):
                request = from_json(line, StopRequest)
                if self._on_stop is not None:
                    self._on_stop(request.trial)
