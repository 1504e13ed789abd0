"""In a process that serves: what its parent sends, the guards before its application, and its end."""

import os
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from msgspec import Struct

from sparktrain.base.decoding import from_json
from sparktrain.base.process_tree import name_process
from sparktrain.base.threads import spawn
from sparktrain.views.webserve.server_process import ServerEndpoint
from sparktrain.views.webserve.token_guard import App, Environ, StartResponse, TokenGuard
from sparktrain.views.webserve.web_server import WebServer

MOST_ANSWERS = 64
"""Each open page holds one for its events, and short ones beside it."""
_FULL = b"too many readers at a time: close other windows of this page, or try again in some seconds\n"
_LOOK_S = 1.0

T = TypeVar("T", bound=Struct)


def start_serving(
    name: str, kind: type[T], clean_up: Callable[[T], None] = lambda settings: None
) -> tuple[ServerEndpoint, T]:
    """What `ServerProcess` has sent: the endpoint, and the settings of this `kind`. `name` is that of the process.

    From then on the process ends when its parent closes the pipe or is gone, after `clean_up`.
    """
    name_process(name)
    parent = os.getppid()
    endpoint = from_json(sys.stdin.buffer.readline(), ServerEndpoint)
    settings = from_json(sys.stdin.buffer.readline(), kind)
    spawn(lambda: _end_with(parent, lambda: clean_up(settings)), f"{name}-end")
    return endpoint, settings


def guarded_server(endpoint: ServerEndpoint, app: App, name: str, subject: str) -> WebServer:
    """A server for `app`, with all that is between it and strangers. `name` is that of the cookie, before the port."""
    guard = TokenGuard(ReaderLimit(app), endpoint.token, f"{name}-{endpoint.port}", endpoint.reader, subject)
    return WebServer(socket.socket(fileno=endpoint.descriptor), guard)


def _end_with(parent: int, clean_up: Callable[[], None]) -> None:
    """Wait until standard input ends or `parent` is gone, call `clean_up`, and end this process. Blocks.

    It does not wait for other threads: those of a server write nothing that would be lost.
    """
    while os.getppid() == parent:
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], _LOOK_S)
        if ready and not os.read(sys.stdin.fileno(), 4096):
            break
    clean_up()
    os._exit(0)


class ReaderLimit:
    """A WSGI application before another one. Called in a thread for each request."""

    def __init__(self, app: App, most: int = MOST_ANSWERS) -> None:
        self._app = app
        self._places = threading.BoundedSemaphore(most)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """See PEP 3333."""
        if not self._places.acquire(blocking=False):
            headers = [("Content-Type", "text/plain"), ("Content-Length", str(len(_FULL))), ("Retry-After", "5")]
            start_response("503 Service Unavailable", headers)
            return [_FULL]
        try:
            return _Answer(self._app(environ, start_response), self._places)
        except BaseException:
            self._places.release()
            raise


class _Answer:
    """An answer that gives its place back when it is closed, as a server does with each."""

    def __init__(self, pieces: Iterable[bytes], places: threading.BoundedSemaphore) -> None:
        self._pieces = pieces
        self._places = places
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._pieces)

    def close(self) -> None:
        """See PEP 3333."""
        if self._closed:
            return
        self._closed = True
        try:
            close = getattr(self._pieces, "close", None)
            if close is not None:
                close()
        finally:
            self._places.release()
