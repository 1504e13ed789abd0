"""The process of a page: it serves on a socket that it inherits, and ends when its standard input does."""

import os
import sys
import threading
import traceback
from typing import TYPE_CHECKING

import msgspec

from sparktrain.base.threads import spawn
from sparktrain.views.page.page_settings import PageSettings, StopRequest
from sparktrain.views.page.page_shell import PageShell
from sparktrain.views.webserve.serving import guarded_server, start_serving

if TYPE_CHECKING:
    from sparktrain.runs.listing.run_folder import RunFolder
    from sparktrain.runs.locate import RunLocation
    from sparktrain.views.page.event_feed import EventFeed
    from sparktrain.views.webserve.token_guard import App

# Requests come in threads, and lines of two must not mix.
_writing = threading.Lock()


def main() -> None:
    """Serve until the parent has closed the pipe, or is gone."""
    endpoint, settings = start_serving("sparktrain-page", PageSettings)
    # Threads that import, or that read thousands of runs, would hold each answer back by 40 ms at every turn of the
    # lock.
    sys.setswitchinterval(0.0005)
    shell = PageShell()
    spawn(lambda: _follow(settings, shell), "sparktrain-page-feed")
    guarded_server(endpoint, shell, "sparktrain-page", "page").serve_forever()


def _follow(settings: PageSettings, shell: PageShell) -> None:
    """Load what reads the runs, and follow them. Ends the process by an error: nothing could be shown."""
    shell.wait_for_answer()
    try:
        app, feed = _loaded(settings)
        shell.take(app)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    feed.follow(threading.Event())


def _loaded(settings: PageSettings) -> "tuple[App, EventFeed]":
    from sparktrain.base.clock import SystemClock
    from sparktrain.config.store_address import STORE_TIMEOUT_S
    from sparktrain.runs.listing.run_folder import RunFolder
    from sparktrain.runs.locate import RunLocation

    folder = RunFolder.of(settings.directory, SystemClock(), STORE_TIMEOUT_S)
    return _of_run(folder, settings) if isinstance(folder, RunLocation) else _of_folder(folder)


def _of_run(place: "RunLocation", settings: PageSettings) -> "tuple[App, EventFeed]":
    from sparktrain.base.clock import SystemClock
    from sparktrain.views.page.page_app import PageApp  # each kind of page loads its own part
    from sparktrain.views.page.page_feed import PageFeed

    feed = PageFeed(place, SystemClock())
    return PageApp(place, feed, _send if settings.stops else None), feed


def _of_folder(folder: "RunFolder") -> "tuple[App, EventFeed]":
    from sparktrain.base.clock import SystemClock
    from sparktrain.views.page.runs_app import RunsApp
    from sparktrain.views.page.runs_feed import RunsFeed

    feed = RunsFeed(folder, SystemClock())
    return RunsApp(feed, SystemClock()), feed


def _send(request: StopRequest) -> None:
    """Pass a request on to the driver."""
    with _writing:
        sys.stdout.buffer.write(msgspec.json.encode(request) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
