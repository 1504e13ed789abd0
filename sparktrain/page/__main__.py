"""The process of a page: it serves on a socket that it inherits, and ends when its standard input does."""

import os
import select
import socket
import sys
import threading

import msgspec

from sparktrain.board.token_guard import TokenGuard
from sparktrain.clock import SystemClock
from sparktrain.page.page_app import PageApp
from sparktrain.page.page_feed import PageFeed
from sparktrain.page.page_server import PageServer
from sparktrain.page.page_settings import PageSettings, StopRequest
from sparktrain.process_tree import name_process
from sparktrain.runs.locate import run_in
from sparktrain.threads import spawn

_LOOK_S = 1.0
_writing = threading.Lock()


def main() -> None:
    """Serve until the parent has closed the pipe, or is gone."""
    name_process("sparktrain-page")
    parent = os.getppid()
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=PageSettings)
    spawn(lambda: _end_with(parent), "sparktrain-page-end")
    place = run_in(settings.directory)
    feed = PageFeed(place, SystemClock())
    spawn(lambda: feed.follow(threading.Event()), "sparktrain-page-feed")
    app = PageApp(place, feed, _send if settings.stops else None)
    guarded = TokenGuard(app, settings.token, f"sparktrain-page-{settings.port}", settings.reader, "page")
    PageServer(socket.socket(fileno=settings.descriptor), guarded).serve_forever()


def _send(request: StopRequest) -> None:
    """Pass a request on to the driver."""
    with _writing:
        sys.stdout.buffer.write(msgspec.json.encode(request) + b"\n")
        sys.stdout.buffer.flush()


def _end_with(parent: int) -> None:
    """End this process with its parent; its threads write nothing that would be lost."""
    while os.getppid() == parent:
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], _LOOK_S)
        if ready and not os.read(sys.stdin.fileno(), 4096):
            break
    os._exit(0)


if __name__ == "__main__":
    main()
