"""In a process that serves: what its parent sends, the guards before its application, and its end."""

import os
import select
import socket
import sys
from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec import Struct

from sparktrain.base.process_tree import name_process
from sparktrain.base.threads import spawn
from sparktrain.views.webserve.reader_limit import ReaderLimit
from sparktrain.views.webserve.server_process import ServerEndpoint
from sparktrain.views.webserve.token_guard import App, TokenGuard
from sparktrain.views.webserve.web_server import WebServer

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
    endpoint = msgspec.json.decode(sys.stdin.buffer.readline(), type=ServerEndpoint)
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=kind)
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
