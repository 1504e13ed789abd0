"""The addresses of the page of several runs, as a WSGI application (PEP 3333); each run has its own page below it."""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from sparktrain.base.clock import Clock
from sparktrain.base.threads import spawn
from sparktrain.errors import UserError
from sparktrain.runs.locate import RunLocation
from sparktrain.views.page.page_request import HTML, JSON, TEXT, PageRequest, answer_events
from sparktrain.views.page.runs_feed import RunsFeed
from sparktrain.views.report.encoding import Live, encoded
from sparktrain.views.report.html import STATIC, asset, served_page
from sparktrain.views.webserve.token_guard import Environ, StartResponse

if TYPE_CHECKING:
    from sparktrain.views.page.page_app import PageApp

MOST_PAGES = 12
"""More are not open at a time: each has its run in memory. The one that was read least recently makes room."""
ALL_RUNS = "../../"
"""The address of the page of the directory, from that of a run."""
RUNS = "runs"
"""The folder of the pages of single runs."""
_READ_ONLY = Live((), "")


class RunsApp:
    """Answers requests, which have a right token: see `TokenGuard`. Called in a thread for each."""

    def __init__(self, feed: RunsFeed, clock: Clock) -> None:
        self._feed = feed
        self._clock = clock
        self._pages = RunPages(clock)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """See PEP 3333."""
        request = PageRequest(environ, start_response)
        match environ.get("PATH_INFO", "/").lstrip("/").split("/"):
            case [folder, name, *below] if folder == RUNS:
                return self._of_run(request, name, below, start_response)
            case _ if environ.get("REQUEST_METHOD") != "GET":
                return request.answer(b"the page of several runs answers GET\n", TEXT, "405 Method Not Allowed")
            case [""]:
                return request.answer(served_page(), HTML)
            case ["static", name] if name in STATIC:
                return request.answer(asset(name), STATIC[name])
            case ["state"]:
                return request.answer(self._feed.document(_READ_ONLY), JSON)
            case ["events"]:
                return answer_events(request, self._feed)
            case ["details"]:
                return self._details(request)
        return request.answer(b"the page has no such address\n", TEXT, "404 Not Found")

    def _of_run(
        self, request: PageRequest, name: str, below: list[str], start_response: StartResponse
    ) -> Iterable[bytes]:
        """The answer of the page of one run: its addresses follow the name of its folder."""
        place = self._feed.place(name)  # names of runs have neither slashes nor spaces
        if place is None:
            text = f"the directory has no run {name}: reload the page for those that it has now\n"
            return request.answer(text.encode(), TEXT, "404 Not Found")
        if not below:
            return request.answer(b"", TEXT, "303 See Other", ("Location", f"{name}/"))
        try:
            app = self._pages.app(place)
        except (UserError, OSError) as error:
            return request.answer(f"the run cannot be shown: {error}\n".encode(), TEXT, "503 Service Unavailable")
        environ = request.environ
        prefix = f"{environ.get('SCRIPT_NAME', '')}/{RUNS}/{name}"
        return app({**environ, "SCRIPT_NAME": prefix, "PATH_INFO": f"/{'/'.join(below)}"}, start_response)

    def _details(self, request: PageRequest) -> Iterable[bytes]:
        """What a comparison shows of the runs that the query names (`run`, repeated)."""
        # NumPy and the views: the first answer of the page does not wait for them.
        from sparktrain.views.report.reading import read_details
        from sparktrain.views.report.views.comparison_view import MOST_RUNS

        names = request.query.get("run", [])
        if len(names) > MOST_RUNS:
            text = f"{len(names)} runs do not fit on one page: compare {MOST_RUNS} at most\n"
            return request.answer(text.encode(), TEXT, "400 Bad Request")
        places = {name: self._feed.place(name) for name in names}
        return request.answer(encoded(read_details(places, self._clock)), JSON)


class _OpenPage(Struct, frozen=True):
    app: "PageApp"
    over: threading.Event


class RunPages:
    """Opens and closes them. For any thread."""

    def __init__(self, clock: Clock, most: int = MOST_PAGES) -> None:
        self._clock = clock
        self._most = most
        self._pages: OrderedDict[str, _OpenPage] = OrderedDict()
        self._changing = threading.Lock()

    def app(self, place: RunLocation) -> "PageApp":
        """The page of a run. Blocks on the store the first time; raises RunDirectoryError and OSError then."""
        name = place.layout.path
        with self._changing:
            page = self._pages.get(name)
            if page is not None:
                self._pages.move_to_end(name)
                return page.app
        from sparktrain.views.page.page_app import PageApp  # with the views, for which the table of runs does not wait
        from sparktrain.views.page.page_feed import PageFeed

        feed = PageFeed(place, self._clock)  # without the lock: other pages do not wait for a large run
        page = _OpenPage(PageApp(place, feed, None, ALL_RUNS), threading.Event())
        with self._changing:
            if name in self._pages:  # another reader was faster
                return self._pages[name].app
            self._pages[name] = page
            superfluous = [self._pages.popitem(last=False)[1] for _ in range(len(self._pages) - self._most)]
        for old_page in superfluous:
            old_page.over.set()
        spawn(lambda: feed.follow(page.over), "sparktrain-page-feed")
        return page.app
