"""The pages of single runs below the page of their directory: each follows its run only while it is read."""

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from msgspec import Struct

from sparktrain.base.clock import Clock
from sparktrain.base.threads import spawn
from sparktrain.runs.locate import RunLocation

if TYPE_CHECKING:
    from sparktrain.views.page.page_app import PageApp

MOST_PAGES = 12
"""More are not open at a time: each has its run in memory. The one that was read least recently makes room."""
ALL_RUNS = "../../"
"""The address of the page of the directory, from that of a run."""


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
