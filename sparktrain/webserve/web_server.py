"""Serves a WSGI application to a few readers at once, by the standard library."""

import socket
import threading
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer

from sparktrain.board.token_guard import App

MOST_CONNECTIONS = 64
"""Each reader holds one for its events, and short ones beside it."""
SEND_S = 20.0
"""A reader that takes nothing for this long is dropped."""
_FULL = b"HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain\r\nRetry-After: 5\r\n\r\ntoo many readers\n"


class PageServer(ThreadingMixIn, WSGIServer):
    """Listens on a socket that is there already; a thread for each connection."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, listening: socket.socket, app: App) -> None:
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.server_name, self.server_port = "localhost", listening.getsockname()[1]
        self.setup_environ()
        self.set_app(app)
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """See base class. One connection too many gets an answer, and no thread."""
        if not self._free.acquire(blocking=False):
            request.settimeout(1.0)
            with suppress(OSError):
                request.sendall(_FULL)
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """See base class."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """See base class: readers that go away are no news."""


class _Answer(ServerHandler):
    """Reports no reader that goes away in the middle of an answer."""

    def log_exception(self, exc_info: Any) -> None:
        """See base class."""
        if not issubclass(exc_info[0], OSError):
            super().log_exception(exc_info)


class _Handler(WSGIRequestHandler):
    timeout = SEND_S

    def handle(self) -> None:
        """See base class; with an answer that is quiet about readers that go away."""
        self.raw_requestline = self.rfile.readline(65537)
        if len(self.raw_requestline) > 65536:
            self.requestline = self.request_version = self.command = ""
            self.send_error(414)
            return
        if not self.parse_request():
            return
        reader: Any = self.rfile
        writer: Any = self.wfile
        handler = _Answer(reader, writer, self.get_stderr(), self.get_environ(), multithread=True)
        handler.request_handler = self  # type: ignore[attr-defined] # as the base class does
        handler.run(self.server.get_app())  # type: ignore[attr-defined] # it is a WSGIServer

    def log_message(self, format: str, *args: object) -> None:
        """Logs no requests: their addresses may hold the token."""
