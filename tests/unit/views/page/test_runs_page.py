"""The page of a directory of runs: its rows and their changes, comparisons, and the pages of single runs below it."""

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from sparktrain.errors import StoreError, StoreTimeoutError
from sparktrain.runs import watcher
from sparktrain.runs.listing.run_folder import RunFolder
from sparktrain.runs.listing.run_list import read_row
from sparktrain.runs.results_json import to_bytes
from sparktrain.views.page import runs_feed
from sparktrain.views.page.runs_app import RunPages, RunsApp
from sparktrain.views.page.runs_feed import RunsFeed
from tests.unit.driver.stored import HandClock, ScriptedRun, looked_at, spoil, typical
from tests.unit.views.page.sites import OWNER, READER, AskedSite


class Site(AskedSite):
    """The page of a directory, which reads it when a test asks it to."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        runs = RunFolder.of(str(folder), self.clock)
        assert isinstance(runs, RunFolder)
        self.feed = RunsFeed(runs, self.clock)
        super().__init__(RunsApp(self.feed, self.clock))

    def look(self) -> None:
        self.feed.look_at_folder()
        self.feed.look_at_live()

    @property
    def rows(self) -> dict[str, Any]:
        return {row["id"]: row for row in self.ask("/state").json["rows"]}

    def news(self, since: int = 0) -> dict[str, str]:
        """The newest state of each run that has changed since that event."""
        events = self.ask("/events", f"since={since}&wait=0").json
        return {row["id"]: row["state"] for event in events for row in event["rows"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def ended(run: ScriptedRun) -> ScriptedRun:
    run.succeed(2, accuracy=0.95)
    run.form(3)
    run.succeed(3, accuracy=0.1)
    run.end()
    run.store.put_if_absent(run.layout.results, to_bytes(looked_at(run).as_outcome()))
    return run


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The hosts with drivers that answer."""
    hosts: set[str] = set()
    monkeypatch.setattr(watcher, "answers", lambda driver: driver.host in hosts)
    return hosts


def test_rows_appear_change_and_leave(folder: Path, alive: set[str]) -> None:
    alive.add("host-1")
    ended(typical(folder, "done"))
    live = typical(folder, "live")
    (folder / "table.csv").write_text("a,b")
    site = Site(folder)
    assert site.rows == {}, "nothing is read before `follow`"
    site.look()
    document = site.ask("/state").json
    assert (document["kind"], document["left_out"], "unread" in document) == ("runs", 1, False)
    assert {name: row["state"] for name, row in site.rows.items()} == {"done": "succeeded", "live": "running"}
    assert site.rows["live"]["slots"]["busy"] == 1
    since = document["event"]
    site.look()
    assert site.news(since) == {}, "what is as before is no change"
    ended(live)
    site.look()
    assert site.news(since) == {"live": "succeeded"}
    shutil.rmtree(folder / "done")
    site.look()
    events = site.ask("/events", f"since={since}&wait=0").json
    assert [event["removed"] for event in events if "removed" in event] == [["done"]]
    assert list(site.rows) == ["live"]


def test_the_page_and_the_command_line_have_the_same_rows(folder: Path, alive: set[str]) -> None:
    for name in ("a", "b"):
        ended(typical(folder, name))
    typical(folder, "gone")
    spoil(folder / "a" / "results.json")
    typical(folder, "spoilt")
    spoil(folder / "spoilt" / "journal" / "batch-0001-00000003")
    site = Site(folder)
    site.look()
    for name, row in site.rows.items():
        place = site.feed.place(name)
        assert place is not None
        read = read_row(place, site.clock).row
        assert (row["state"], row.get("problem", "")) == (read.state, read.problem)
        assert row.get("best", {}).get("value") == read.value
    assert site.rows["spoilt"]["state"] == "unreadable"


def test_a_run_that_is_resumed_is_live_again(folder: Path, alive: set[str]) -> None:
    run = ended(typical(folder))
    site = Site(folder)
    site.look()
    assert site.rows["mnist"]["state"] == "succeeded"
    alive.add("host-9")
    run.begin(host="host-9")
    site.look()
    assert site.rows["mnist"]["state"] == "running"
    run.end("stopped")
    site.look()
    assert site.rows["mnist"]["state"] == "stopped"


def test_a_driver_that_was_too_busy_to_answer_is_asked_again(folder: Path, alive: set[str]) -> None:
    typical(folder, "busy")
    typical(folder, "gone").begin(host="host-7")
    site = Site(folder)
    site.look()
    assert {row["state"] for row in site.rows.values()} == {"driver gone"}
    alive.add("host-1")
    site.look()
    assert site.rows["busy"]["state"] == "driver gone", "its journal is as before"
    site.feed.look_at_gone()
    assert {name: row["state"] for name, row in site.rows.items()} == {"busy": "running", "gone": "driver gone"}
    alive.clear()
    site.clock.at += 20
    site.look()
    assert site.rows["busy"]["state"] == "driver gone"


def test_a_run_that_was_put_back_is_read_again(folder: Path, alive: set[str]) -> None:
    run = ended(typical(folder))
    path = folder / "mnist" / "run.json"
    content = path.read_bytes()
    path.write_text(json.dumps({**json.loads(content), "version": 9}))
    site = Site(folder)
    site.look()
    assert site.rows["mnist"]["state"] == "unreadable"
    path.write_bytes(content)
    site.look()
    site.look()
    assert site.rows["mnist"]["state"] == "succeeded"
    assert run.directory == site.rows["mnist"]["label"]["directory"]


def test_runs_that_have_ended_are_checked_in_turns(
    folder: Path, alive: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [ended(typical(folder, f"run-{number:02d}")) for number in range(20)]
    site = Site(folder)
    monkeypatch.setattr(runs_feed, "_CHECKED_S", -1.0)  # one turn of eight at a look
    site.look()
    since = site.ask("/state").json["event"]
    runs[19].begin()
    looks = next(number for number in range(1, 10) if site.look() or site.news(since))
    assert site.news(since) == {"run-19": "driver gone"}
    assert looks <= 3, "each run has had its turn"


def test_a_run_that_the_store_refuses_hides_no_other(
    folder: Path, alive: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typical(folder, "bad")
    typical(folder, "good")
    real = runs_feed.read_row

    def reading(place: Any, clock: Any) -> Any:
        if place.layout.path == "bad":
            raise StoreError(5, "a sector is bad")
        return real(place, clock)

    monkeypatch.setattr(runs_feed, "read_row", reading)
    site = Site(folder)
    site.look()
    assert (site.rows["bad"]["state"], site.rows["good"]["state"]) == ("unreadable", "driver gone")
    assert "a sector is bad" in site.rows["bad"]["problem"]


def test_a_store_that_does_not_answer_ends_the_look_and_not_the_page(
    folder: Path, alive: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(typical(folder))
    site = Site(folder)
    site.look()

    def silent(*_: object) -> None:
        raise StoreTimeoutError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(site.feed._folder, "new_names", silent)
        with pytest.raises(StoreTimeoutError):
            site.look()
    assert list(site.rows) == ["mnist"]
    site.look()


def test_without_readers_nothing_is_read(folder: Path, alive: set[str]) -> None:
    typical(folder)
    site = Site(folder)
    over = threading.Event()
    thread = threading.Thread(target=lambda: site.feed.follow(over), daemon=True)
    thread.start()
    site.ask("/events", "since=0&wait=20")  # the user has just started the page: it is read at once
    assert site.ask("/state").code == 200
    site.clock.at += 100
    over.set()
    thread.join(20)
    assert not thread.is_alive()


def test_nothing_is_shown_without_the_token_and_nothing_can_be_changed(folder: Path, alive: set[str]) -> None:
    typical(folder)
    site = Site(folder)
    site.look()
    for path in ("/", "/state", "/events", "/details", "/runs/mnist/", "/runs/mnist/state"):
        assert site.ask(path, token="wrong").code == 403
    assert site.ask("/state", token=READER).code == 200
    assert site.ask("/state", method="POST").code == 405
    assert site.ask("/runs/mnist/stop", method="POST").code == 403, "the page is not that of the driver"
    for path in ("/none", "/static/none.js", "/runs", "/runs/none/", "/runs/../state", "/runs/%2e%2e/run.json"):
        assert site.ask(path).code in (404, 303), path
    assert OWNER.encode() not in site.ask("/").body


def test_each_run_has_its_page_below(folder: Path, alive: set[str]) -> None:
    ended(typical(folder, "size-1"))
    site = Site(folder)
    site.look()
    path = "/runs/size-1"
    redirect = site.ask(path)
    assert (redirect.code, redirect.headers["Location"]) == (303, "size-1/")
    document = site.ask(f"{path}/state").json
    assert (document["headline"]["run"]["name"], document["live"]["all_runs"]) == ("size-1", "../../")
    assert site.ask(f"{path}/").body == site.ask("/").body
    assert b"epoch 1" in site.ask(f"{path}/logs/0").body
    shutil.rmtree(folder / "size-1" / "plans")
    again = Site(folder)
    again.look()
    assert again.ask(f"{path}/state").code == 503
    assert b"the run cannot be shown" in again.ask(f"{path}/state").body


def test_few_pages_are_open_at_a_time(folder: Path, alive: set[str]) -> None:
    places = [ended(typical(folder, f"run-{number}")).place for number in range(4)]
    pages = RunPages(HandClock(), most=2)
    first = pages.app(places[0])
    second = pages.app(places[1])
    assert pages.app(places[0]) is first
    over = pages._pages["run-1"].over
    pages.app(places[2])
    assert over.is_set(), "the one that was read least recently makes room"
    assert pages.app(places[0]) is first
    assert pages.app(places[1]) is not second


def test_details_for_a_comparison(folder: Path, alive: set[str]) -> None:
    run = typical(folder, "one")
    run.note(0, 1, 2, 3, accuracy=0.5)
    ended(run)
    typical(folder, "two")
    typical(folder, "spoilt")
    shutil.rmtree(folder / "spoilt" / "plans")
    site = Site(folder)
    site.look()
    found = site.ask("/details", "run=one&run=two&run=spoilt&run=none").json
    assert list(found["details"]) == ["one", "two"]
    assert sorted(found["problems"]) == ["none", "spoilt"]
    detail = found["details"]["one"]
    assert detail["best_params"] == {"lr": 0.01, "dropout": 0.5}
    assert [(strand["trial"], strand.get("best", False)) for strand in detail["strands"]] == [
        (2, True),
        (0, False),
        (3, False),
    ]
    assert detail["history"]["at"] == [1, 2, 3]
    assert detail["history"]["values"] == [0.9, 0.95, 0.95]
    assert detail["facts"]["options: seed"] == "7"
    assert site.ask("/details", "&".join(f"run={number}" for number in range(27))).code == 400


def test_curves_of_the_best_trial_over_steps_and_time(folder: Path, alive: set[str]) -> None:
    run = typical(folder)
    run.note(2, 1, 2, 30, generation=2, accuracy=0.5)
    ended(run)
    site = Site(folder)
    site.look()
    line = site.ask("/details", "run=mnist").json["details"]["mnist"]["curves"]["accuracy"]
    assert line["at"] == [1, 2, 30]
    seconds = line["seconds"]
    assert seconds == sorted(seconds)
    assert line["values"] == [0.5, 0.5, 0.5]
