"""Limits the answers that are given at a time. WSGI (PEP 3333), behind the token: strangers take no place."""

import threading
from collections.abc import Iterable, Iterator

from sparktrain.views.webserve.token_guard import App, Environ, StartResponse

MOST_ANSWERS = 64
"""Each open page holds one for its events, and short ones beside it."""
_FULL = b"too many readers at a time: close other windows of this page, or try again in some seconds\n"


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
