"""The addresses of a page: who may do what, and what readers get of a run that changes."""

import gzip
import io
import threading
from pathlib import Path
from typing import Any

import pytest

from sparktrain.errors import JournalCorruptError, RunDirectoryError
from sparktrain.runs import watcher
from sparktrain.runs.additions.enqueued import pending
from sparktrain.runs.locate import RunLocation
from sparktrain.views.page import event_feed
from sparktrain.views.page.page_app import LOG_BYTES, PageApp
from sparktrain.views.page.page_feed import PageFeed
from sparktrain.views.page.page_settings import StopRequest
from tests.unit.driver.stored import HandClock, ScriptedRun, spoil, typical
from tests.unit.views.page.sites import OWNER, READER, Answer, AskedSite


class Site(AskedSite):
    """A page over a scripted run, asked without a server."""

    def __init__(self, run: ScriptedRun, stops: bool = True) -> None:
        self.stopped: list[StopRequest] = []
        self.clock = HandClock()
        self.feed = PageFeed(run.place, self.clock)
        app = PageApp(run.place, self.feed, self.stopped.append if stops else None)
        super().__init__(app)

    def csrf(self, token: str = OWNER) -> str:
        return str(self.ask("/state", token=token).json["live"]["csrf"])


@pytest.fixture
def run(tmp_path: Path) -> ScriptedRun:
    return typical(tmp_path / "runs")


@pytest.fixture
def site(run: ScriptedRun) -> Site:
    return Site(run)


@pytest.mark.parametrize("path", ["/", "/state", "/events", "/logs/0", "/static/app.js"])
def test_nothing_is_shown_without_the_token(site: Site, path: str) -> None:
    answer = site.ask(path, token="wrong")
    assert answer.code == 403
    assert answer.body == b"this is not the token of this page: open the URL that sparktrain has printed\n"


@pytest.mark.parametrize("path", ["/", "/state", "/static/app.js", "/static/uplot.js", "/static/app.css"])
def test_answers_protect_their_reader(site: Site, path: str) -> None:
    answer = site.ask(path)
    assert answer.code == 200
    policy = dict(each.strip().split(" ", 1) for each in answer.headers["Content-Security-Policy"].split(";"))
    assert (policy["default-src"], policy["script-src"], policy["frame-ancestors"]) == ("'none'", "'self'", "'self'")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert OWNER.encode() not in answer.body


def test_addresses_are_relative_so_that_a_proxy_may_serve_the_page_anywhere(site: Site) -> None:
    body = site.ask("/").body
    assert b'="/' not in body
    assert b"http" not in body.replace(b"http-equiv", b"")


def test_a_trial_and_the_run_are_stopped_by_the_owner_alone(site: Site) -> None:
    csrf = {"HTTP_X_SPARKTRAIN_TOKEN": site.csrf()}
    for path in ("/stop", "/trials/2/stop"):
        assert site.ask(path, method="GET", **csrf).code == 404, "no address that a link can lead to stops anything"
        assert site.ask(path, method="POST").code == 403
        assert site.ask(path, method="POST", HTTP_X_SPARKTRAIN_TOKEN="guessed").code == 403
        assert site.ask(path, method="POST", token=READER, **csrf).code == 403
    assert site.stopped == []
    assert site.ask("/trials/2/stop", method="POST", **csrf).json == {"stopping": 2}
    assert site.ask("/stop", method="POST", **csrf).code == 202
    assert site.stopped == [StopRequest(2), StopRequest(None)]
    unknown = site.ask("/trials/77/stop", method="POST", **csrf)
    assert (unknown.code, unknown.body) == (404, b"the run has no trial 77\n")
    assert len(site.stopped) == 2
    assert site.ask("/state").json["live"]["rights"] == ["stop"]
    assert site.ask("/state", token=READER).json["live"]["rights"] == []


def test_the_owner_alone_adds_a_trial(site: Site, run: ScriptedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "answers", lambda who: True)
    fresh = ScriptedRun(Path(run.store.address.url), "fresh", total=None).begin()
    site = Site(fresh)
    csrf = {"HTTP_X_SPARKTRAIN_TOKEN": site.csrf()}

    def add(text: bytes, **headers: str) -> "Answer":
        body: Any = {"CONTENT_LENGTH": str(len(text)), "wsgi.input": io.BytesIO(text), **headers}
        return site.ask("/enqueue", method="POST", **body)

    assert add(b"lr=0.1").code == 403
    assert add(b"lr=0.1", token=READER, **csrf).code == 403
    assert site.ask("/enqueue", method="GET", **csrf).code == 404
    for text in (b"lr=0.3", b"lr", b"lr='", b"\xff", b"", b"x" * 70_000):
        assert add(text, **csrf).code == 400, text
    assert add(b"lr=0.3", **csrf).body.startswith(b"the parameters are outside of the space: ")
    assert pending(fresh.store, fresh.layout, ()) == []
    assert add(b"lr=0.1", **csrf).code == 202
    assert [each.params for each in pending(fresh.store, fresh.layout, ())] == [{"lr": 0.1}]
    assert Site(fresh, stops=False).ask("/enqueue", method="POST", **csrf).code == 403


def test_the_page_of_another_process_stops_nothing(run: ScriptedRun) -> None:
    site = Site(run, stops=False)
    assert site.ask("/state").json["live"]["rights"] == []
    answer = site.ask("/stop", method="POST", HTTP_X_SPARKTRAIN_TOKEN=site.csrf())
    assert answer.code == 403
    assert b"only the page of the run's own driver" in answer.body


def test_changes_are_patches_and_each_has_a_number(run: ScriptedRun, site: Site) -> None:
    assert site.ask("/events", "since=0&wait=0").json == []
    run.form(3)
    site.feed.look()
    run.succeed(3, accuracy=0.99)
    site.feed.look()
    first, second = site.ask("/events", "since=0&wait=0").json
    assert (first["id"], second["id"]) == (1, 2)
    assert {row["id"]: row["status"] for row in first["trials"]} == {3: "running"}
    assert {row["id"]: row["status"] for row in second["trials"]} == {0: "succeeded", 3: "succeeded"}, (
        "0 lost its place"
    )
    assert second["headline"]["best"]["trial"] == 3
    assert site.ask("/events", "since=1&wait=0").json == [second]
    assert site.ask("/events", "since=7&wait=0").json == [first, second], "a number of a server before this one"
    site.feed.look()
    assert site.ask("/events", "since=2&wait=0").json == []


def test_views_follow_reports(run: ScriptedRun, site: Site) -> None:
    site.feed.look_at_reports()
    assert all("views" not in each for each in site.ask("/events", "wait=0").json)
    run.note(0, 1, 2, 3, accuracy=0.5)
    site.feed.look_at_reports()
    event = site.ask("/events", "since=0&wait=0").json[-1]
    assert [each["metric"] for each in event["views"]["curves"]] == ["accuracy"]
    assert site.ask("/state").json["views"]["curves"] == event["views"]["curves"]


def test_reports_that_the_document_has_are_no_news(run: ScriptedRun) -> None:
    run.note(0, 1, 2, 3, accuracy=0.5)
    site = Site(run)
    site.feed.look_at_reports()
    assert site.ask("/events", "since=0&wait=0").json == []


def test_a_reader_who_missed_too_much_gets_everything(run: ScriptedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "KEPT_EVENTS", 4)
    site = Site(run)
    for number in range(6):
        run.report(2, 500 + number, accuracy=number / 1e4)
        site.feed.look()
    found = site.ask("/events", "since=1&wait=0").json
    assert len(found) == 1
    assert [row["id"] for row in found[0]["trials"]] == [0, 1, 2, 3]
    assert "views" in found[0]


def test_a_stream_has_numbered_events_and_continues_where_the_browser_lost_it(run: ScriptedRun, site: Site) -> None:
    stream = site.ask("/events", "since=0").pieces
    assert next(stream).startswith(b"event: heartbeat")
    for accuracy in (0.1, 0.2):
        run.report(2, round(1000 * accuracy), accuracy=accuracy)
        site.feed.look()
    assert [next(stream).split(b"\n")[0] for _ in range(2)] == [b"id: 1", b"id: 2"]
    again = site.ask("/events", "since=0", HTTP_LAST_EVENT_ID="1").pieces
    next(again)
    assert next(again).startswith(b"id: 2\ndata: {")


def test_logs_are_plain_text_from_a_byte_on(run: ScriptedRun, site: Site) -> None:
    run.log(3, "<script>alert(1)</script>\n")
    answer = site.ask("/logs/3")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert (answer.body, answer.headers["X-Next-Offset"]) == (b"<script>alert(1)</script>\n", "26")
    assert site.ask("/logs/3", "offset=26").body == b""
    restarted = site.ask("/logs/3", "offset=9999")
    assert (restarted.body[:8], restarted.headers["X-Next-Offset"]) == (b"<script>", "26"), "of a newer generation"
    silent = site.ask("/logs/1")
    assert (silent.code, silent.body, silent.headers["X-Next-Offset"]) == (200, b"", "0"), "a trial without a log"
    unknown = site.ask("/logs/99")
    assert (unknown.code, unknown.body) == (404, b"the run has no trial 99\n")
    assert site.ask("/logs/x").code == 404
    run.log(1, "x" * (LOG_BYTES + 10))
    assert site.ask("/logs/1").headers["X-Next-Offset"] == str(LOG_BYTES)
    assert site.ask("/logs/1", f"offset={LOG_BYTES}").body == b"x" * 10


@pytest.mark.parametrize("digits", ["9" * 16, "9" * 5000, "\u0663", "\u00b2", "-1", "1e3"])
def test_a_number_that_is_none_names_nothing(site: Site, digits: str) -> None:
    assert site.ask(f"/logs/{digits}").code == 404
    assert site.ask(f"/trials/{digits}/stop", method="POST", HTTP_X_SPARKTRAIN_TOKEN=site.csrf()).code == 404
    assert site.ask("/logs/1", f"offset={digits}").code == 200
    assert site.ask("/events", f"wait={digits}&since={digits}", HTTP_LAST_EVENT_ID=digits).code == 200


@pytest.mark.parametrize(("method", "path", "code"), [
    ("GET", "/static/../page_app.py", 404), ("GET", "/static/none.js", 404), ("PUT", "/stop", 405),
    ("POST", "/trials/x/stop", 404), ("GET", "//elsewhere", 404),
])  # fmt: skip
def test_other_requests_are_refused(site: Site, method: str, path: str, code: int) -> None:
    assert site.ask(path, method=method).code == code


def test_large_answers_are_compressed_for_browsers_that_take_it(site: Site) -> None:
    answer = site.ask("/static/app.js", HTTP_ACCEPT_ENCODING="gzip, br")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(answer.body) == site.ask("/static/app.js").body


def test_a_run_is_not_looked_at_while_nobody_reads_its_page(run: ScriptedRun) -> None:
    site, over = Site(run), threading.Event()
    looks = counted_looks(site.feed)
    following = threading.Thread(target=site.feed.follow, args=(over,))
    following.start()
    try:
        run.form(3)
        site.clock.at += 60.0
        assert looks == []
        assert [row["status"] for row in site.ask("/state").json["trials"] if row["id"] == 3] == ["running"], (
            "the first reader gets the state of before"
        )
        assert looks
    finally:
        over.set()
        following.join(10)


def counted_looks(feed: PageFeed) -> list[float]:
    """Grows with each look of the feed at its run."""
    looks: list[float] = []
    look = feed.look

    def counted() -> None:
        looks.append(1.0)
        look()

    feed.look = counted  # type: ignore[method-assign]
    return looks


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path / "runs")
    run.store.delete(run.layout.spec)
    with pytest.raises(RunDirectoryError, match="is no run directory"):
        PageFeed(RunLocation(run.store, run.layout), HandClock())


def test_a_run_with_a_corrupt_journal_is_shown_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    run = typical(tmp_path / "runs")
    spoil(tmp_path / "runs" / "mnist" / "journal" / "batch-0001-00000003")
    site = Site(run)
    [problem] = site.ask("/state").json["headline"]["problems"]
    assert problem.startswith("the journal is corrupt")
    with pytest.raises(JournalCorruptError):
        site.feed.look()
    site.feed.look_at_reports()
    assert site.ask("/state").json["trials"] != []
