"""The process of a page: it serves on a socket that it inherits, and ends when its standard input does."""

import sys
import threading

import msgspec

from sparktrain.clock import SystemClock
from sparktrain.config.store_address import STORE_TIMEOUT_S
from sparktrain.page.page_app import PageApp
from sparktrain.page.page_feed import PageFeed
from sparktrain.page.page_settings import PageSettings, StopRequest
from sparktrain.page.runs_app import RunsApp
from sparktrain.page.runs_feed import RunsFeed
from sparktrain.runs.listing.run_folder import RunFolder
from sparktrain.runs.locate import RunLocation
from sparktrain.threads import spawn
from sparktrain.webserve.serving import guarded_server, start_serving
from sparktrain.webserve.token_guard import App

# Requests come in threads, and lines of two must not mix.
_writing = threading.Lock()


def main() -> None:
    """Serve until the parent has closed the pipe, or is gone."""
    endpoint, settings = start_serving("sparktrain-page", PageSettings)
    clock = SystemClock()
    folder = RunFolder.of(settings.directory, clock, STORE_TIMEOUT_S)
    app: App
    feed: PageFeed | RunsFeed
    if isinstance(folder, RunLocation):
        feed = PageFeed(folder, clock)
        app = PageApp(folder, feed, _send if settings.stops else None)
    else:
        feed = RunsFeed(folder, clock)
        # Eight threads that read thousands of runs would hold each answer back by 40 ms at every turn of the lock.
        sys.setswitchinterval(0.0005)
        app = RunsApp(feed, clock)
    spawn(lambda: feed.follow(threading.Event()), "sparktrain-page-feed")
    guarded_server(endpoint, app, "sparktrain-page", "page").serve_forever()


def _send(request: StopRequest) -> None:
    """Pass a request on to the driver."""
    with _writing:
        sys.stdout.buffer.write(msgspec.json.encode(request) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
