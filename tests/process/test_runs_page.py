"""The page of a directory of runs in Debian's Chromium: live beside a sweep that trains, and as one file."""

import json
import shutil
import threading
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, Locator, Page
from rich.console import Console
from rich.table import Table

import sparktrain as st
from sparktrain.base.clock import SystemClock
from sparktrain.display.runs_table import RunsTable
from sparktrain.rundir.report_parts import step_row
from sparktrain.runs.listing.run_folder import RunFolder, runs_of
from sparktrain.runs.listing.run_list import list_runs, read_row
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.plan import Origin, RefitTrial, WarmPlan
from sparktrain.runs.results_json import to_bytes
from sparktrain.state.records import DriverStarted
from sparktrain.views.page.live_page import LivePage
from sparktrain.views.report import reading
from sparktrain.views.report.html import report_html
from sparktrain.views.report.reading import read_runs
from sparktrain.views.report.writing import write_report
from tests.unit.driver.stored import HandClock, ScriptedRun, looked_at, typical

LIMIT_MS = 20_000
CHOICES = ("adam", "<b>sgd</b>")


def learn(x: int, folder: str, ctx: Any) -> dict[str, float]:
    """Train until a file allows the run to end."""
    ctx.report(0, accuracy=0.5)
    while not Path(folder, "over").exists() and not ctx.should_stop():
        time.sleep(0.02)
    return {"accuracy": 0.999}


def scripted(folder: Path, name: str, trials: int, numpy: str = "2.0", **options: Any) -> ScriptedRun:
    """A run that has ended, with curves: trial n is better than those before it."""
    run = ScriptedRun(folder, name, total=trials, **options).begin()
    run.write(DriverStarted(plan=run.plan.digest, versions={"numpy": numpy}, trials=trials, at=run.at))
    run.add(*({"lr": 10.0 ** -(trial % 4), "opt": CHOICES[trial % 2]} for trial in range(trials)))
    for trial in range(trials):
        run.form(trial)
        best = (trial + 1) / (trials + 1)
        run.record([step_row(trial, 1, 0, step, run.at + step, {"accuracy": best * step / 9}) for step in range(10)])
        run.at += 20
        run.succeed(trial, accuracy=best)
    run.end()
    run.store.put_if_absent(run.layout.results, to_bytes(looked_at(run).as_outcome()))
    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sweep, a sweep that it has warmed and that was extended, two refits, an unreadable run, and other files."""
    folder = tmp_path / "runs"
    sweep = scripted(folder, "sweep", 6)
    warm = WarmPlan((sweep.directory, "hdfs:///old/search"), (), (), "accuracy", ())
    wide = scripted(folder, "wide", 9, numpy="2.1", warm=warm)
    wide.begin()
    versions = {"numpy": "2.1"}
    wide.write(DriverStarted(plan=wide.plan.digest, versions=versions, extends=True, trials=20, at=wide.at))
    scripted(folder, "refit", 1, workers=4, origin=Origin(sweep.directory, 5, sweep.save(5, 9)))
    scripted(folder, "again", 1, refit=RefitTrial(wide.directory, 8))
    typical(folder, "newer")
    path = folder / "newer" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 9}))
    (folder / "notes.txt").write_text("no run")
    (folder / "data").mkdir()
    return folder


def holds(condition: Callable[[], bool], subject: str) -> None:
    """Wait for a condition. Not by `wait_for_function`: the policy of a served page allows no `eval`."""
    deadline = time.monotonic() + LIMIT_MS / 1000
    while not condition():
        assert time.monotonic() < deadline, subject
        time.sleep(0.05)


class Watched:
    """A page of the browser, with everything that should not happen."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.page = browser.new_page(**options)
        self.wrong: list[str] = []
        origin = url.partition("?")[0]
        allowed = (origin, "data:", "file:") if url.startswith("file:") else (origin, "data:")
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda line: self.wrong.append(line.text) if line.type == "error" else None)
        self.page.on("request", lambda asked: None if asked.url.startswith(allowed) else self.wrong.append(asked.url))
        self.page.on("dialog", lambda dialog: self.wrong.append("a dialog"))
        self.page.set_default_timeout(LIMIT_MS)
        self.page.goto(url)
        self.page.wait_for_selector("body[data-ready=yes]")

    def row(self, name: str, state: str = "") -> Locator:
        return self.page.locator(f'[data-run="{name}"]').filter(has_text=state)

    def filter(self, text: str, names: set[str]) -> None:
        """Filter the table, and wait until it has these runs."""
        self.page.get_by_label("Filter runs").fill(text)
        shown = "() => [...document.querySelectorAll('[data-run]')].map(row => row.dataset.run).sort()"
        holds(lambda: self.page.evaluate(shown) == sorted(names), f"the runs {sorted(names)} for {text!r}")

    def compare(self, *names: str) -> None:
        for name in names:
            self.page.get_by_label(f"Choose {name}", exact=True).click()
        label = f"Compare {len(names)} runs" if len(names) > 1 else "Compare 1 run"
        self.page.get_by_role("button", name=label).click()
        self.page.wait_for_selector("main[data-ready=yes]")


def fits(page: Page) -> None:
    """Nothing is wider than the screen, once the page is drawn for it."""
    holds(lambda: page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), "no wider than the screen")


def check_comparison(seen: Watched) -> None:
    """What the comparison of `sweep`, `wide` and `refit` shows."""
    page = seen.page
    page.get_by_text("3 runs compared").wait_for()
    differences = page.locator("#compared-differences")
    differences.get_by_role("row", name="numpy 2.0 2.1 2.0").wait_for()
    differences.get_by_role("row", name="gang.workers 1 1 4").wait_for()
    assert differences.locator("h3").all_text_contents() == ["Options", "Environment"]
    curves = page.locator("#compared-curves")
    assert curves.locator("canvas").count() == 2, "the metric, and the best so far"
    curves.get_by_label("Over").select_option("time")
    assert curves.locator("canvas").count() == 2
    parallel = page.locator("#compared-parallel svg")
    assert parallel.locator(".strand").count() == 6 + 9 + 1
    assert parallel.locator(".strand.best").count() == 3
    assert "<b>sgd</b>" in (parallel.text_content() or ""), "names are text"
    page.locator("#compared-params").get_by_role("row", name="opt").wait_for()
    assert "cannot be drawn" not in page.inner_text("body")


def check_row(folder: Path) -> None:
    """A run that real trials have made has the same row by small files as by its journal."""
    place = RunFolder.of(str(folder / "live"), HandClock())
    assert isinstance(place, RunLocation)
    short = read_row(place, HandClock())
    assert short.observer is None, "its journal was read"
    assert short.row == read_row(place, HandClock(), whole=True).row
    assert (short.row.state, short.row.value, short.row.total, short.row.done) == ("succeeded", 0.999, 2, 2)
    assert short.row.owner.user


ALSO_IN_LS = ("state", "failed", "duration", "slots", "restarts")
"""Columns that `sparktrain ls` and the page have."""
CELLS = """() => {
    const words = (node) => node.textContent.replace(/ [↓↑]$/, "").trim();
    const names = [...document.querySelectorAll("[role=columnheader]")].map(words);
    const cells = (row) => Object.fromEntries([...row.children].map((cell, place) => [names[place], words(cell)]));
    return Object.fromEntries([...document.querySelectorAll("[data-run]")].map((row) => [row.dataset.run, cells(row)]));
}"""


def listed(folder: Path) -> dict[str, dict[str, str]]:
    """The cells of `sparktrain ls`, by run and column."""
    clock = SystemClock()
    runs = list_runs(runs_of(str(folder), clock).places, clock)
    console = Console(width=200, file=StringIO())
    table = next(iter(RunsTable(runs, clock.wall()).__rich_console__(console, console.options)))
    assert isinstance(table, Table)
    columns = {str(column.header): [str(cell) for cell in column.cells] for column in table.columns}
    return {name: {head: cells[place] for head, cells in columns.items()} for place, name in enumerate(columns["run"])}


def test_ls_and_the_page_agree(browser: Browser, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    scripted(runs, "sweep", 6)
    scripted(runs, "gang", 1, workers=4)
    typical(runs, "gone")
    long_run = ScriptedRun(runs, "long", total=1).begin()
    long_run.add({"lr": 0.1})
    long_run.form(0)
    long_run.at += 216_000
    long_run.succeed(0, accuracy=0.5)
    long_run.end()
    with LivePage.start(str(runs)) as served:
        seen = Watched(browser, served.url, viewport={"width": 1600, "height": 900})
        for name in ("sweep", "gang", "long"):
            seen.row(name, "succeeded").wait_for()
        seen.row("gone", "driver gone").wait_for()
        shown = seen.page.evaluate(CELLS)
        seen.page.close()
    in_ls = listed(runs)
    assert {name: {head: cells[head] for head in ALSO_IN_LS} for name, cells in in_ls.items()} == {
        name: {head: cells[head] for head in ALSO_IN_LS} for name, cells in shown.items()
    }
    assert in_ls["gang"]["slots"] == "4"
    assert in_ls["gone"]["restarts"] == in_ls["gone"]["failed"] == "1"
    assert in_ls["long"]["duration"] == "2.5 days"
    assert not seen.wrong


def test_the_runs_of_a_directory_live(browser: Browser, folder: Path, tmp_path: Path) -> None:
    over = tmp_path / "signals"
    over.mkdir()

    def sweep() -> None:
        st.sweep(learn, {"x": [1, 2], "folder": [str(over)]}, metric="accuracy", mode="max", dir=str(folder),
                 name="live", spark=st.local(slots=2), preload=[], backend="none", progress=False)  # fmt: skip

    with LivePage.start(str(folder)) as served:
        seen = Watched(browser, served.url, viewport={"width": 1280, "height": 900})
        page = seen.page
        assert "token" not in page.url
        seen.row("sweep", "succeeded").wait_for()
        seen.row("newer", "unreadable").wait_for()
        seen.row("wide", "driver gone").wait_for()
        page.get_by_text("2 other entries left out").wait_for()
        thread = threading.Thread(target=sweep, daemon=True)
        thread.start()
        seen.row("live", "running").wait_for()
        page.get_by_text("2 slots in use").wait_for()
        seen.filter("opt=adam lr>=1", {"wide", "refit", "again"})
        seen.filter("state=succeeded", {"sweep", "refit", "again"})
        page.get_by_role("columnheader", name="best").click()
        first = page.locator("[data-run]").first
        assert first.get_attribute("data-run") == "sweep", "the best value first, and names among equals"
        seen.filter("", {"sweep", "wide", "refit", "again", "newer", "live"})
        seen.compare("sweep", "wide", "refit")
        check_comparison(seen)
        page.go_back()
        seen.row("sweep").wait_for()
        lineage = page.locator("#lineage")
        for text in ("refit of trial 5", "refit of trial 8", "warm start", "not in this directory"):
            lineage.locator("text", has_text=text).first.wait_for()
        lineage.get_by_role("button", name="wide, driver gone · extended 9 → 20").click()
        pane = page.get_by_role("dialog", name="Run")
        pane.get_by_text("9 succeeded, of 20").wait_for()
        (over / "over").touch()
        page.keyboard.press("Escape")
        seen.row("live", "succeeded").filter(has_text="0.999").wait_for()
        thread.join(60)
        assert not thread.is_alive()
        check_row(folder)
        seen.row("live").click()
        pane.get_by_role("link", name="Open its page").click()
        page.locator('[data-trial="1"]').filter(has_text="succeeded").wait_for()
        page.get_by_role("link", name="← All runs").click()
        seen.row("live", "succeeded").wait_for()
        shutil.rmtree(folder / "live")
        seen.row("live").wait_for(state="detached")
        for scheme, width in (("dark", 420), ("light", 1280)):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            page.set_viewport_size({"width": width, "height": 900})
            fits(page)
        assert seen.wrong == []
        page.close()


NARROW = pytest.mark.all(
    case="all runs of a directory as a file, on a dark narrow screen",
    covered_by="the file on a wide screen, and the live page on a dark narrow one",
)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), pytest.param("dark", 400, marks=NARROW, id="narrow")])
def test_the_runs_of_a_directory_as_one_file(
    browser: Browser, folder: Path, tmp_path: Path, scheme: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_DETAILED", 4)
    path = write_report([str(folder)], tmp_path / "runs.html", HandClock())
    seen = Watched(browser, path.as_uri(), color_scheme=scheme, viewport={"width": width, "height": 900})
    page = seen.page
    fits(page)
    seen.filter("state!=unreadable", {"sweep", "wide", "refit", "again"})
    seen.compare("sweep", "wide", "refit")
    check_comparison(seen)
    fits(page)
    page.get_by_role("link", name="← All runs").click()
    seen.filter("newer", {"newer"})
    seen.row("newer").click()
    pane = page.get_by_role("dialog", name="Run")
    pane.get_by_text("has version 9, and this sparktrain reads version 1").wait_for()
    assert pane.get_by_role("link", name="Open its page").count() == 0, "a file has no server"
    page.keyboard.press("Escape")
    page.goto(f"{path.as_uri()}#compare=newer")
    page.get_by_text("newer: this file has curves and facts of the newest runs alone").wait_for()
    assert seen.wrong == []
    page.close()


def test_of_thousands_of_runs_few_rows_are_elements(browser: Browser, folder: Path, tmp_path: Path) -> None:
    runs = RunFolder.of(str(folder), HandClock())
    assert isinstance(runs, RunFolder)
    document = read_runs(runs, HandClock())
    [row] = [row for row in document.rows if not isinstance(row, msgspec.Raw) and row.id == "sweep"]
    label = row.label
    copies = [
        msgspec.structs.replace(row, id=f"run-{number:05d}", label=msgspec.structs.replace(label, name=f"n{number}"))
        for number in range(5000)
    ]
    path = tmp_path / "thousands.html"
    path.write_bytes(report_html(msgspec.structs.replace(document, rows=copies)))
    seen = Watched(browser, path.as_uri(), viewport={"width": 1280, "height": 900})
    page = seen.page
    assert page.locator("[data-run]").count() < 100
    page.get_by_role("grid").focus()
    page.keyboard.press("End")
    seen.row("run-04999").wait_for()
    assert page.locator("[data-run]").count() < 100
    page.get_by_label("Filter runs").fill("n4321")
    page.get_by_text("1 of 5,000 runs").wait_for()
    page.get_by_role("grid").focus()
    page.keyboard.press(" ")
    page.get_by_role("button", name="Compare 1 run").wait_for()
    assert seen.wrong == []
    page.close()
