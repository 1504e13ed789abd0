"""The addresses of a page, as a WSGI application (PEP 3333): relative ones, for a proxy may serve it anywhere."""

import gzip
import hmac
import json
import secrets
import shlex
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import parse_qs

from sparktrain.config.load import parse_params
from sparktrain.errors import SpecError
from sparktrain.ids import TrialId
from sparktrain.page.log_ranges import wanted_range, whole_text
from sparktrain.page.page_feed import PageFeed
from sparktrain.page.page_settings import StopRequest
from sparktrain.report.html import SERVED_POLICY, STATIC, asset, served_page
from sparktrain.report.views.report_document import Live
from sparktrain.runs.additions.enqueued import enqueue
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.logs import LogFile, LogSelection, chosen, logs_in
from sparktrain.webserve.token_guard import READER, Environ, StartResponse

HEARTBEAT_S = 10.0
"""Time between two signs of an event stream on which nothing happens: proxies close silent ones."""
LONGEST_WAIT_S = 30.0
MOST_PARAMS_BYTES = 2**16
"""The most bytes of the parameters of an added trial."""
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
_HEADERS = (
    ("Content-Security-Policy", SERVED_POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)

Stop = Callable[[StopRequest], None]


class PageApp:
    """Answers requests, which have a right token: see `TokenGuard`. Called in a thread for each."""

    def __init__(self, place: RunLocation, feed: PageFeed, stop: Stop | None) -> None:
        """`stop` asks the driver of the run to stop; None where it cannot be asked."""
        self._place = place
        self._feed = feed
        self._stop = stop
        # The cookie alone may not stop a run: a browser sends it with a form on any page of the same host, of another
        # port too.
        self._csrf = secrets.token_urlsafe(24)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """See PEP 3333."""
        request = _Request(environ, start_response)
        path = environ.get("PATH_INFO", "/").strip("/").split("/")
        match environ.get("REQUEST_METHOD"), path:
            case "GET", [""]:
                return request.answer(served_page(), "text/html; charset=utf-8")
            case "GET", ["static", name] if name in STATIC:
                return request.answer(asset(name), STATIC[name])
            case "GET", ["state"]:
                return request.answer(self._feed.document(self._live(request)), JSON)
            case "GET", ["events"]:
                return self._events(request)
            case "GET", ["logs", number] if is_number(number):
                return self._log(request, TrialId(int(number)))
            case "POST", ["stop"]:
                return self._stopped(request, None)
            case "POST", ["trials", number, "stop"] if is_number(number):
                return self._stopped(request, int(number))
            case "POST", ["enqueue"]:
                return self._enqueued(request)
            case "GET" | "POST", _:
                return request.answer(b"the page has no such address\n", TEXT, "404 Not Found")
        return request.answer(b"the page answers GET and POST\n", TEXT, "405 Method Not Allowed")

    def _live(self, request: "_Request") -> Live:
        stops = self._stop is not None and not request.reads_only
        return Live(("stop",) if stops else (), self._csrf)

    # ---- events

    def _events(self, request: "_Request") -> Iterable[bytes]:
        since = max(request.number("since"), request.last_event)
        if "wait" not in request.query:
            return self._stream(request, since)
        news = self._feed.since(since, min(LONGEST_WAIT_S, request.number("wait")))
        return request.answer(b"[" + b",".join(event for _, event in news) + b"]", JSON)

    def _stream(self, request: "_Request", since: int) -> Iterator[bytes]:
        """Server-sent events (HTML standard, section 9.2), until the reader is gone."""
        request.start_answer("text/event-stream", ("X-Accel-Buffering", "no"))
        # A proxy may hold back even the head of a stream until something follows; the page waited for its start for
        # ever.
        yield b"event: heartbeat\ndata: {}\n\n"
        while True:
            news = self._feed.since(since, HEARTBEAT_S)
            if not news:
                yield b"event: heartbeat\ndata: {}\n\n"
            for since, event in news:
                yield b"id: %d\ndata: %s\n\n" % (since, event)

    # ---- logs

    def _log(self, request: "_Request", trial: TrialId) -> Iterable[bytes]:
        """A part of the log of the newest chief as plain text, see `wanted_range`: nothing while there is no log."""
        try:
            logs = chosen(logs_in(self._place, trial), LogSelection(trial))
            # A trial without a log yet has an empty one: browsers print an error in their console.
            if not logs and not self._feed.knows(trial):
                return request.answer(_no_trial(trial), TEXT, "404 Not Found")
            start, piece = self._piece(logs[-1], request) if logs else (0, b"")
        except OSError as error:
            return request.answer(f"the log cannot be read: {error}\n".encode(), TEXT, "503 Service Unavailable")
        places = (("X-Start-Offset", str(start)), ("X-Next-Offset", str(start + len(piece))))
        generation = str(logs[-1].member.generation if logs else 0)
        return request.answer(piece, TEXT, "200 OK", *places, ("X-Generation", generation))

    def _piece(self, log: LogFile, request: "_Request") -> tuple[int, bytes]:
        """The number of the first byte, and the bytes."""
        tail, before_offset = (request.number(name) if name in request.query else None for name in ("tail", "before"))
        start, end = wanted_range(log.size, request.number("offset"), tail, before_offset)
        piece = self._place.store.read_range(log.path, start, end - start) if end > start else b""
        skipped, text = whole_text(piece, from_middle=tail is not None and start > 0)
        return start + skipped, text

    # ---- stops

    def _stopped(self, request: "_Request", trial: int | None) -> Iterable[bytes]:
        if self._stop is None:
            text = "only the page of the run's own driver (page=True, --page) can stop it\n"
            return request.answer(text.encode(), TEXT, "403 Forbidden")
        if not self._may_change(request):
            return request.answer(b"this link may look, and not stop anything\n", TEXT, "403 Forbidden")
        if trial is not None and not self._feed.knows(trial):
            return request.answer(_no_trial(trial), TEXT, "404 Not Found")
        self._stop(StopRequest(trial))
        return request.answer(json.dumps({"stopping": trial}).encode(), JSON, "202 Accepted")

    def _may_change(self, request: "_Request") -> bool:
        """Whether the request comes from a page with the token that may stop, and not from a link elsewhere."""
        sent_token = request.environ.get("HTTP_X_SPARKTRAIN_TOKEN", "")
        return not request.reads_only and hmac.compare_digest(sent_token.encode(), self._csrf.encode())

    # ---- more trials

    def _enqueued(self, request: "_Request") -> Iterable[bytes]:
        """Add a trial with the parameters in the body, as `sparktrain enqueue --param` takes them."""
        if self._stop is None:
            text = "only the page of the run's own driver (page=True, --page) can add a trial: see sparktrain enqueue\n"
            return request.answer(text.encode(), TEXT, "403 Forbidden")
        if not self._may_change(request):
            return request.answer(b"this link may look, and not add trials\n", TEXT, "403 Forbidden")
        try:
            added = enqueue(self._place, parse_params(shlex.split(request.text(MOST_PARAMS_BYTES))))
        except (SpecError, ValueError) as error:  # an open quotation mark, or no UTF-8
            return request.answer(f"{error}\n".encode(), TEXT, "400 Bad Request")
        except OSError as error:
            return request.answer(f"the run cannot be read: {error}\n".encode(), TEXT, "503 Service Unavailable")
        return request.answer(json.dumps({"added": added.id}).encode(), JSON, "202 Accepted")


def is_number(text: str) -> bool:
    """Whether `text` is a whole number of at most 15 digits: Python takes other digits, and refuses very long ones."""
    return text.isascii() and text.isdecimal() and len(text) <= 15


def _number(text: str) -> int:
    return int(text) if is_number(text) else 0


def _no_trial(number: int) -> bytes:
    return f"the run has no trial {number}\n".encode()


class _Request:
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
