"""The addresses of a page, as a WSGI application (PEP 3333): relative ones, for a proxy may serve it anywhere."""

import hmac
import json
import secrets
import shlex
from collections.abc import Callable, Iterable

from sparktrain.base.ids import TrialId
from sparktrain.config.param_files.load import parse_params
from sparktrain.errors import SpecError
from sparktrain.runs.additions.enqueued import enqueue
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.logs import LogFile, LogSelection, chosen, logs_in
from sparktrain.views.page.page_feed import PageFeed
from sparktrain.views.page.page_request import HTML, JSON, TEXT, PageRequest, answer_events, is_number
from sparktrain.views.page.page_settings import StopRequest
from sparktrain.views.report.encoding import Live
from sparktrain.views.report.html import STATIC, asset, served_page
from sparktrain.views.webserve.token_guard import Environ, StartResponse

LOG_BYTES = 2**20
"""The most bytes of a log in one answer."""
_LONGEST_CHARACTER = 4
"""Bytes in UTF-8."""
MOST_PARAMS_BYTES = 2**16
"""The most bytes of the parameters of an added trial."""

Stop = Callable[[StopRequest], None]


class PageApp:
    """Answers requests, which have a right token: see `TokenGuard`. Called in a thread for each."""

    def __init__(self, place: RunLocation, feed: PageFeed, stop: Stop | None, all_runs: str = "") -> None:
        """`stop` asks the driver of the run to stop; None where it cannot be asked. `all_runs`: see `Live`."""
        self._all_runs = all_runs
        self._place = place
        self._feed = feed
        self._stop = stop
        # The cookie alone may not stop a run: a browser sends it with a form on any page of the same host, of another
        # port too.
        self._csrf = secrets.token_urlsafe(24)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """See PEP 3333."""
        request = PageRequest(environ, start_response)
        path = environ.get("PATH_INFO", "/").strip("/").split("/")
        match environ.get("REQUEST_METHOD"), path:
            case "GET", [""]:
                return request.answer(served_page(), HTML)
            case "GET", ["static", name] if name in STATIC:
                return request.answer(asset(name), STATIC[name])
            case "GET", ["state"]:
                return request.answer(self._feed.document(self._live(request)), JSON)
            case "GET", ["events"]:
                return answer_events(request, self._feed)
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

    def _live(self, request: PageRequest) -> Live:
        stops = self._stop is not None and not request.reads_only
        return Live(("stop",) if stops else (), self._csrf, self._all_runs)

    # ---- logs

    def _log(self, request: PageRequest, trial: TrialId) -> Iterable[bytes]:
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

    def _piece(self, log: LogFile, request: PageRequest) -> tuple[int, bytes]:
        """The number of the first byte, and the bytes."""
        tail, before_offset = (request.number(name) if name in request.query else None for name in ("tail", "before"))
        start, end = wanted_range(log.size, request.number("offset"), tail, before_offset)
        piece = self._place.store.read_range(log.path, start, end - start) if end > start else b""
        skipped, text = whole_text(piece, from_middle=tail is not None and start > 0)
        return start + skipped, text

    # ---- stops

    def _stopped(self, request: PageRequest, trial: int | None) -> Iterable[bytes]:
        if self._stop is None:
            text = "only the page of the run's own driver (page=True, --page) can stop it\n"
            return request.answer(text.encode(), TEXT, "403 Forbidden")
        if not self._may_change(request):
            return request.answer(b"this link may look, and not stop anything\n", TEXT, "403 Forbidden")
        if trial is not None and not self._feed.knows(trial):
            return request.answer(_no_trial(trial), TEXT, "404 Not Found")
        self._stop(StopRequest(trial))
        return request.answer(json.dumps({"stopping": trial}).encode(), JSON, "202 Accepted")

    def _may_change(self, request: PageRequest) -> bool:
        """Whether the request comes from a page with the token that may stop, and not from a link elsewhere."""
        sent_token = request.environ.get("HTTP_X_SPARKTRAIN_TOKEN", "")
        return not request.reads_only and hmac.compare_digest(sent_token.encode(), self._csrf.encode())

    # ---- more trials

    def _enqueued(self, request: PageRequest) -> Iterable[bytes]:
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


def _no_trial(number: int) -> bytes:
    return f"the run has no trial {number}\n".encode()


def wanted_range(size: int, offset: int, tail: int | None, before: int | None) -> tuple[int, int]:
    """The start and the end of the bytes that a request asks for, of a log of `size` bytes.

    With `tail`, the last so many bytes before `before`, or of the log. Else from `offset` on: from the start of a log
    that is shorter, because it is of a newer generation.
    """
    if tail is not None:
        end = size if before is None else min(size, before)
        return max(0, end - min(tail, LOG_BYTES)), end
    start = offset if offset <= size else 0
    return start, min(size, start + LOG_BYTES)


def whole_text(piece: bytes, from_middle: bool) -> tuple[int, bytes]:
    """The part of a piece that is text by itself, and how many bytes at its start are left out.

    A character that is not complete at the end is left for the next piece. `from_middle` pieces start somewhere in the
    log: they start with a whole line here, or where one line fills half of the piece with a whole character.
    """
    skipped = 0
    if from_middle:
        line = piece.find(b"\n", 0, len(piece) // 2) + 1
        skipped = line or _continued(piece)
    return skipped, piece[skipped : len(piece) - _incomplete(piece)]


def _continued(piece: bytes) -> int:
    """Bytes at the start that continue a character."""
    return next((at for at, byte in enumerate(piece[:_LONGEST_CHARACTER]) if byte & 0xC0 != 0x80), 0)


def _incomplete(piece: bytes) -> int:
    """Bytes at the end of a character that lacks some."""
    for back in range(1, min(_LONGEST_CHARACTER, len(piece)) + 1):
        byte = piece[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return back if length > back else 0
    return 0
