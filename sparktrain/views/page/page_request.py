"""A request of a browser, and the start of its answer, as WSGI (PEP 3333) has them; and how a wait for events ends."""

import gzip
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import parse_qs

from sparktrain.errors import SpecError
from sparktrain.views.page.event_feed import EventFeed
from sparktrain.views.report.html import SERVED_POLICY
from sparktrain.views.webserve.token_guard import READER, Environ, StartResponse

HEARTBEAT_S = 10.0
"""Time between two signs of an event stream on which nothing happens: proxies close silent ones."""
LONGEST_WAIT_S = 30.0
HTML = "text/html; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
_HEADERS = (
    ("Content-Security-Policy", SERVED_POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)


class PageRequest:
    """One request and the start of its answer."""

    def __init__(self, environ: Environ, start_response: StartResponse) -> None:
        self.environ = environ
        self.query = parse_qs(environ.get("QUERY_STRING", ""))
        self._start_response: Any = start_response

    @property
    def reads_only(self) -> bool:
        """It has the token of those who may only look."""
        return bool(self.environ.get(READER))

    @property
    def last_event(self) -> int:
        """The event after which the browser lost its stream."""
        return _number(self.environ.get("HTTP_LAST_EVENT_ID", ""))

    def number(self, name: str) -> int:
        """A number of the query, 0 by default."""
        return _number(self.query.get(name, ["0"])[-1])

    def text(self, most: int) -> str:
        """The body. Raises SpecError where it is too large, UnicodeDecodeError."""
        length_text = self.environ.get("CONTENT_LENGTH") or "0"
        length = int(length_text) if is_number(length_text) else most + 1
        if length > most:
            raise SpecError(f"the request has more than {most:,} bytes: send less")
        return bytes(self.environ["wsgi.input"].read(length)).decode()

    def start_answer(self, kind: str, *more: tuple[str, str], status: str = "200 OK") -> None:
        """Send the head of the answer."""
        self._start_response(status, [("Content-Type", kind), *_HEADERS, *more])

    def answer(self, body: bytes, kind: str, status: str = "200 OK", *more: tuple[str, str]) -> Iterable[bytes]:
        """The whole answer, compressed where that is worth it and the browser takes it."""
        if len(body) > 4096 and "gzip" in self.environ.get("HTTP_ACCEPT_ENCODING", ""):
            body = gzip.compress(body, 1)
            more = (*more, ("Content-Encoding", "gzip"))
        self.start_answer(kind, ("Content-Length", str(len(body))), *more, status=status)
        return [body]


def answer_events(request: PageRequest, feed: EventFeed) -> Iterable[bytes]:
    """The changes since the newest one that the reader has: as a stream, or at once for a long poll (`wait`)."""
    since = max(request.number("since"), request.last_event)
    if "wait" not in request.query:
        return _stream(request, feed, since)
    news = feed.since(since, min(LONGEST_WAIT_S, request.number("wait")))
    return request.answer(b"[" + b",".join(event for _, event in news) + b"]", JSON)


def _stream(request: PageRequest, feed: EventFeed, since: int) -> Iterator[bytes]:
    """Server-sent events (HTML standard, section 9.2), until the reader is gone."""
    request.start_answer("text/event-stream", ("X-Accel-Buffering", "no"))
    # A proxy may hold back even the head of a stream until something follows; the page waited for its start for ever.
    yield b"event: heartbeat\ndata: {}\n\n"
    while True:
        news = feed.since(since, HEARTBEAT_S)
        if not news:
            yield b"event: heartbeat\ndata: {}\n\n"
        for since, event in news:
            yield b"id: %d\ndata: %s\n\n" % (since, event)


def is_number(text: str) -> bool:
    """Whether `text` is a whole number of at most 15 digits: Python takes other digits, and refuses very long ones."""
    return text.isascii() and text.isdecimal() and len(text) <= 15


def _number(text: str) -> int:
    return int(text) if is_number(text) else 0
