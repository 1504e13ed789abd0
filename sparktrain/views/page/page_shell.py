"""The page itself, answered while the process still loads what reads the runs.

A browser needs some tenths of a second to fetch and to run the scripts of the page. What reads runs takes the process
as long to import, so both happen at the same time: the page and its static files wait for nothing.
"""

import threading
from collections.abc import Iterable

from sparktrain.views.page.page_request import HTML, TEXT, PageRequest
from sparktrain.views.report.html import STATIC, asset, served_page
from sparktrain.views.webserve.token_guard import App, Environ, StartResponse

HEAD_START_S = 0.2
"""How long the imports wait for the first request: beside it they would take half of the time of its answer."""
LOAD_TIMEOUT_S = 60.0
"""How long a request waits for the application."""


class PageShell:
    """Stands before the application of a page, which comes later. Called in a thread for each request."""

    def __init__(self) -> None:
        self._app: App | None = None
        self._has_loaded = threading.Event()
        self._has_answered = threading.Event()

    def wait_for_answer(self) -> None:
        """Wait until the page itself was answered once, for `HEAD_START_S` at most."""
        self._has_answered.wait(HEAD_START_S)

    def take(self, app: App) -> None:
        """The application is there. Any thread."""
        self._app = app
        self._has_loaded.set()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """See PEP 3333. Blocks until the application is there, unless it is not needed."""
        if environ.get("REQUEST_METHOD") == "GET":
            match environ.get("PATH_INFO", "/").lstrip("/").split("/"):
                case [""]:
                    answer = PageRequest(environ, start_response).answer(served_page(), HTML)
                    self._has_answered.set()
                    return answer
                case ["static", name] if name in STATIC:
                    return PageRequest(environ, start_response).answer(asset(name), STATIC[name])
        self._has_loaded.wait(LOAD_TIMEOUT_S)
        if self._app is None:
            text = b"the page has not loaded yet: reload it\n"
            return PageRequest(environ, start_response).answer(text, TEXT, "503 Service Unavailable")
        return self._app(environ, start_response)
