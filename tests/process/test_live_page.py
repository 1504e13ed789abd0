"""The live page of real runs, in Debian's Chromium: what appears, and what its buttons do."""

import re
import sys
import threading
import time
import traceback
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page

import sparktrain as st
from sparktrain.errors import SpecError
from sparktrain.views.page.live_page import LivePage
from tests.unit.driver.stored import typical

LIMIT_MS = 20_000
LOG_LINE, LOG_LINES = "step %08d: " + "loss 0.123456 " * 6, 200_000
TRIALS = 16


def learn(x: int, folder: str, ctx: Any) -> dict[str, float]:
    """Trial 3 fails; trials 5 and 7 last until they are asked to stop, the last one until the run is to end; others are
    short. The page of a run ends with it."""
    print(f"<b>first line</b> of {x}", flush=True)
    ctx.report(0, y=float(x))
    if x == 3:
        raise ValueError("no <script>alert(1)</script> here")
    while x in (5, 7, TRIALS - 1) and not ctx.should_stop() and not Path(folder, "over").exists():
        time.sleep(0.02)
    return {"y": float(x)}


def write_long_log(path: Path) -> None:
    """A log of 20 MB."""
    path.write_text("".join(f"{LOG_LINE % number}\n" for number in range(LOG_LINES)) + "last line\n")


def first_step(text: str) -> int:
    """The number in its first line."""
    return int(text.split(":")[0].split()[1])


class Watched:
    """A page of the browser, with everything that should not happen."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.wrong: list[str] = []
        origin = url.partition("?")[0]
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda line: self.wrong.append(line.text) if line.type == "error" else None)
        page.on(
            "request",
            lambda request: None if request.url.startswith((origin, "data:")) else self.wrong.append(request.url),
        )
        page.on("dialog", lambda dialog: dialog.accept())
        page.set_default_timeout(LIMIT_MS)
        page.goto(url)
        page.wait_for_selector("body[data-ready=yes]")


def row(page: Page, trial: int, status: str) -> Locator:
    """The row of a trial in the table, once the trial has that status."""
    return page.locator(f'[data-trial="{trial}"]').filter(has_text=status)


def fits(page: Page) -> bool:
    """Nothing is wider than the screen, once the page is drawn for it."""
    deadline = time.monotonic() + LIMIT_MS / 1000
    while not page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class Running:
    """A sweep in a thread, and the URL of its page."""

    def __init__(self, runs: Path, capfd: pytest.CaptureFixture[str], **options: Any) -> None:
        self.folder = runs
        self.result: Any = None
        self._printed = ""
        self._capfd = capfd
        runs.mkdir(exist_ok=True)
        self.thread = threading.Thread(target=self._run, args=(options,), daemon=True)
        self.thread.start()
        self.url = self._url()

    def _run(self, options: dict[str, Any]) -> None:
        self.result = st.sweep(
            learn, {"x": list(range(TRIALS)), "folder": [str(self.folder)]}, metric="y", mode="max", page=True,
            spark=st.local(slots=2), dir=str(self.folder), name="live", preload=[], backend="none", **options,
        )  # fmt: skip

    def _url(self) -> str:
        for _ in range(600):
            self._printed += self._capfd.readouterr().err
            if found := re.search(r"page: (http\S+)", self._printed):
                return found[1]
            time.sleep(0.05)
        frame = sys._current_frames().get(self.thread.ident or 0)
        where = "".join(traceback.format_stack(frame)) if frame else "the run is over"
        raise AssertionError(f"no URL was printed: {self._printed}\n{where}")

    def end(self) -> Any:
        (self.folder / "over").touch()
        self.thread.join(120)
        assert not self.thread.is_alive()
        return self.result


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def test_a_run_of_many_trials_live(browser: Browser, runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    running = Running(runs, capfd)
    seen = Watched(browser.new_page(), running.url)
    page = seen.page
    assert "token" not in page.url, "the address can be shared, the token cannot"
    row(page, 3, "failed").wait_for()
    page.get_by_label("Status", exact=True).select_option("failed")
    page.get_by_role("grid").focus()
    page.keyboard.press("Enter")
    pane = page.get_by_role("dialog", name="Trial")
    pane.get_by_text("no <script>alert(1)</script> here").first.wait_for()
    pane.get_by_text("<b>first line</b> of 3").first.wait_for()
    page.keyboard.press("Escape")
    page.get_by_label("Status", exact=True).select_option("")
    empty = {"body": "", "headers": {"X-Next-Offset": "0", "Content-Type": "text/plain"}}
    page.route("**/logs/5?tail=*", lambda route: route.fulfill(**empty), times=1)
    for number in (5, 7):
        page.get_by_label("Filter trials").fill(f"x={number}")
        row(page, number, "running").click()
        if number == 5:
            pane.get_by_text("trial 5 has no log yet").wait_for()
        pane.get_by_text(f"<b>first line</b> of {number}").wait_for()
        assert not pane.get_by_text("has no log yet").count()
        pane.get_by_role("button", name="Stop this trial").click()
        page.keyboard.press("Escape")
        row(page, number, "pruned").wait_for()
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_viewport_size({"width": 420 if scheme == "dark" else 1280, "height": 900})
        assert fits(page), f"{scheme}: wider than the screen"
        page.screenshot(path=str(runs / f"{scheme}.png"), full_page=True)
    result = running.end()
    assert [each.status for each in result.trials[3:8:2]] == ["failed", "pruned", "pruned"]
    assert result.trials[5].pruned == "stopped on its page"
    assert result.trials[5].metrics == {"y": 5.0}
    assert sum(each.status == "succeeded" for each in result.trials) == TRIALS - 3
    assert not seen.wrong


def test_the_run_is_stopped_by_its_button(browser: Browser, runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    running = Running(runs, capfd)
    seen = Watched(browser.new_page(), running.url)
    seen.page.get_by_label("Filter trials").fill("x=5")
    row(seen.page, 5, "running").wait_for()
    seen.page.get_by_role("button", name="Stop the run").click()
    running.thread.join(60)
    assert running.result.status == "stopped"
    assert running.result.reason == "stopped on its page"


def test_a_stored_run_has_a_page_without_buttons(browser: Browser, runs: Path) -> None:
    st.sweep(learn, {"x": [1, 2], "folder": [str(runs)]}, metric="y", mode="max", dir=str(runs), name="stored",
             spark=st.local(slots=1), preload=[], backend="none", progress=False)  # fmt: skip
    with LivePage.start(str(runs / "stored")) as served:
        seen = Watched(browser.new_page(), served.url)
        row(seen.page, 1, "succeeded").click()
        pane = seen.page.get_by_role("dialog", name="Trial")
        pane.get_by_text("<b>first line</b> of 2").wait_for()
        seen.page.keyboard.press("Escape")
        write_long_log(runs / "stored" / "trials" / "0000" / "generation-1" / "rank-0" / "log.txt")
        row(seen.page, 0, "succeeded").click()
        log = pane.get_by_label("Log")
        log.get_by_text("last line").wait_for()
        text = log.inner_text()
        assert len(text) < 2**20, "the end alone"
        pane.get_by_role("button", name=re.compile("Show earlier lines .1[0-9].[0-9] MiB before")).click()
        log.filter(has_text=f"step {first_step(text) - 1000:08d}:").wait_for()
        shown = log.evaluate("element => element.textContent").splitlines()
        first = first_step(shown[0])
        assert shown == [*(LOG_LINE % number for number in range(first, LOG_LINES)), "last line"], "each line once"
        assert seen.page.get_by_role("button", name=re.compile("Stop")).count() == 0
        assert not seen.wrong
        bare = served.url.partition("?")[0]
        for address, code in ((bare, 401), (bare + "?token=wrong", 403), (bare + "state?token=wrong", 403)):
            with pytest.raises(urllib.error.HTTPError, match=str(code)):
                urllib.request.urlopen(address, timeout=10)
        port = int(bare.rstrip("/").rpartition(":")[2])
        with pytest.raises(SpecError, match=rf"port \({port}\) cannot be had .* choose another"):
            LivePage.start(str(runs / "stored"), port=port)
    served.close()


def test_behind_a_proxy_that_holds_event_streams_back_the_page_asks_for_events(browser: Browser, runs: Path) -> None:
    run = typical(runs)
    asked: list[str] = []
    page = browser.new_page()
    page.route(re.compile(r"/events\?since=\d+$"), lambda route: asked.append(route.request.url))  # never answered
    with LivePage.start(run.directory) as served:
        seen = Watched(page, served.url)
        row(page, 3, "queued").wait_for()
        page.get_by_text("live", exact=True).wait_for()
        run.form(3)
        row(page, 3, "running").wait_for()
        run.succeed(3, accuracy=0.99)
        row(page, 3, "succeeded").wait_for()
        page.close()
    assert len(asked) == 1
    assert seen.wrong == []
