"""The process of a page: it serves on a socket that it inherits, and ends when its standard input does."""

import os
import socket
import sys
import threading

import msgspec

from sparktrain.clock import SystemClock
from sparktrain.page.page_app import PageApp
from sparktrain.page.page_feed import PageFeed
from sparktrain.page.page_settings import PageSettings, StopRequest
from sparktrain.process_tree import name_process
from sparktrain.runs.locate import run_in
from sparktrain.threads import spawn
from sparktrain.webserve.reader_limit import ReaderLimit
from sparktrain.webserve.server_process import end_with
from sparktrain.webserve.token_guard import TokenGuard
from sparktrain.webserve.web_server import WebServer

_writing = threading.Lock()


def main() -> None:
    """Serve until the parent has closed the pipe, or is gone."""
    name_process("sparktrain-page")
    parent = os.getppid()
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=PageSettings)
    spawn(lambda: end_with(parent), "sparktrain-page-end")
    place = run_in(settings.directory)
    feed = PageFeed(place, SystemClock())
    spawn(lambda: feed.follow(threading.Event()), "sparktrain-page-feed")
    app = PageApp(place, feed, _send if settings.stops else None)
    guarded = TokenGuard(ReaderLimit(app), settings.token, f"sparktrain-page-{settings.port}", settings.reader, "page")
    WebServer(socket.socket(fileno=settings.descriptor), guarded).serve_forever()


def _send(request: StopRequest) -> None:
    """Pass a request on to the driver."""
    with _writing:
        sys.stdout.buffer.write(msgspec.json.encode(request) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
