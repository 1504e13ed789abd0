"""The process of a page: it serves on a socket that it inherits, and ends when its standard input does."""

import sys
import threading

import msgspec

from sparktrain.clock import SystemClock
from sparktrain.page.page_app import PageApp
from sparktrain.page.page_feed import PageFeed
from sparktrain.page.page_settings import PageSettings, StopRequest
from sparktrain.runs.locate import run_in
from sparktrain.threads import spawn
from sparktrain.webserve.serving import guarded_server, start_serving

# Requests come in threads, and lines of two must not mix.
_writing = threading.Lock()


def main() -> None:
    """Serve until the parent has closed the pipe, or is gone."""
    endpoint, settings = start_serving("sparktrain-page", PageSettings)
    place = run_in(settings.directory)
    feed = PageFeed(place, SystemClock())
    spawn(lambda: feed.follow(threading.Event()), "sparktrain-page-feed")
    app = PageApp(place, feed, _send if settings.stops else None)
    guarded_server(endpoint, app, "sparktrain-page", "page").serve_forever()


def _send(request: StopRequest) -> None:
    """Pass a request on to the driver."""
    with _writing:
        sys.stdout.buffer.write(msgspec.json.encode(request) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
