"""Serves a WSGI application to a few readers at once, by the standard library.

A thread serves each connection, for one request (HTTP/1.0). Until the head of the request is there its peer is a
stranger: strangers have few places, which newer ones take over from older ones, and a deadline for the whole head, for
one that sends a byte now and then is never silent (Slowloris). What a request without a token gets is short, so that
its connection ends at once; who has the token is counted by `ReaderLimit`.
"""

import socket
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.protocol.strangers import StrangerPlaces
from sparktrain.views.webserve.token_guard import App

STRANGERS = 64
"""Limit of connections at a time that have not sent the whole head of a request."""
STRANGERS_OF_ADDRESS = 32
"""The same for one address: a proxy brings all its readers from one."""
HEAD_S = 10.0
"""Time for the head of a request."""
SEND_S = 20.0
"""A reader that takes nothing for this long is dropped."""
_FULL = b"HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain\r\nRetry-After: 1\r\n\r\ntoo many connections\n"


class WebServer(ThreadingMixIn, WSGIServer):
    """Listens on a socket that is there already; a thread for each connection."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, listening: socket.socket, app: App, clock: Clock | None = None) -> None:
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.server_name, self.server_port = "localhost", listening.getsockname()[1]
        self.setup_environ()
        self.set_app(app)
        self.strangers = StrangerPlaces(clock or SystemClock(), STRANGERS, STRANGERS_OF_ADDRESS, HEAD_S)

    def process_request(self, request: Any, client_address: Any) -> None:
        """See base class. One connection too many gets an answer, and no thread."""
        # 64 connections that sent a byte each 10 s kept every reader out, without a token.
        if not self.strangers.enter(request, client_address[0]):
            request.settimeout(1.0)
            with suppress(OSError):
                request.sendall(_FULL)
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """See base class."""
        self.strangers.leave(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """See base class: called twice a second, and after each connection."""
        self.strangers.end_late()

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
    server: WebServer

    def handle(self) -> None:
        """See base class; with an answer that is quiet about readers that go away."""
        self.raw_requestline = self.rfile.readline(65537)
        if len(self.raw_requestline) > 65536:
            self.requestline = self.request_version = self.command = ""
            self.send_error(414)
            return
        if not self.parse_request():
            return
        # The head is there: from here on the token and `ReaderLimit` decide.
        self.server.strangers.leave(self.connection)
        reader: Any = self.rfile
        writer: Any = self.wfile
        handler = _Answer(reader, writer, self.get_stderr(), self.get_environ(), multithread=True)
        handler.request_handler = self  # type: ignore[attr-defined] # as the base class does
        app = self.server.get_app()
        assert app is not None
        handler.run(app)

    def log_message(self, format: str, *args: object) -> None:
        """Logs no requests: their addresses may hold the token."""
