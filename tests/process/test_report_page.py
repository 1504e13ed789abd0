"""The report of a run as a file, in Debian's Chromium."""

import math
import random
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from sparktrain.views.report.writing import write_report
from tests.unit.driver.stored import HandClock, ScriptedRun

TRIALS = 400


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ScriptedRun:
    """A search over numbers, choices and odd names, with failures and stopped trials."""
    made, draw = (
        ScriptedRun(tmp_path_factory.mktemp("report") / "runs", "search", total=TRIALS).begin(),
        random.Random(1),
    )
    made.add(*({"lr": 10 ** draw.uniform(-4, 0), "act": draw.choice(["relu", "<b>gelu</b>"])} for _ in range(TRIALS)))
    for trial in range(TRIALS):
        made.at += 1.0
        made.form(trial, hosts=(f"host-{trial % 5}",))
        value = -1e9 if trial == 5 else draw.random()
        if trial % 3 == 0:
            made.note(trial, 1, 2, 3, accuracy=value)
        if trial % 50 == 7:
            made.fail(trial, "ValueError: <script>alert(1)</script>")
        else:
            made.succeed(trial, accuracy=math.nan if trial == 11 else value)
    made.end()
    return made


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
def test_a_report_is_drawn_and_searched(
    browser: Browser, run: ScriptedRun, tmp_path: Path, scheme: str, width: int
) -> None:
    path = write_report([run.directory], tmp_path / "report.html", HandClock())
    page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})  # type: ignore[arg-type]
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    page.on("dialog", lambda dialog: wrong.append("a dialog"))
    page.on("request", lambda asked: None if asked.url.startswith(("file:", "data:")) else wrong.append(asked.url))
    page.set_default_timeout(20_000)
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready=yes]")
    assert "cannot be drawn" not in page.inner_text("body")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), "wider than the screen"
    cards = page.locator("main > section.card h2").all_inner_texts()
    assert cards.index("Trials") <= 2
    cut = "all => all.filter(cell => cell.scrollWidth > cell.clientWidth + 1).map(cell => cell.textContent)"
    assert page.eval_on_selector_all(".th", cut) == [], "headers are whole"
    table, card = page.locator(".table").bounding_box(), page.locator("#trials").bounding_box()
    assert table is not None
    assert card is not None
    assert table["x"] + table["width"] <= card["x"] + card["width"], "a wide table scrolls in its card"
    for section in ("history", "slices"):  # one terrible trial is a mark with its value, and flattens nothing
        page.locator(f"#{section}").get_by_text("beyond the axis: ▼ -1e9 (trial 5)").wait_for()
    assert page.locator("#slices svg .edge").count() == 2
    assert page.locator("#slices").get_by_text("lr (log)").count() == 1
    page.locator("#importance").get_by_text(re.compile(r"^\d+ % +\(\d+( to \d+)? %\)$")).first.wait_for()
    page.get_by_label("Filter trials").fill("act=<b>gelu</b>")
    page.get_by_label("Status", exact=True).select_option("failed")
    failed = page.locator("[data-trial]")
    failed.first.wait_for()
    page.get_by_role("grid").focus()
    page.keyboard.press("Enter")
    pane = page.get_by_role("dialog", name="Trial")
    pane.get_by_text("ValueError: <script>alert(1)</script>").first.wait_for()
    page.keyboard.press("Escape")
    assert not pane.is_visible()
    assert wrong == []
    page.close()


def test_two_reports_beside_each_other_are_drawn(browser: Browser, run: ScriptedRun, tmp_path: Path) -> None:
    path = write_report([run.directory, run.directory], tmp_path / "both.html", HandClock())
    page, wrong = browser.new_page(), list[str]()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready=yes]")
    page.get_by_text("2 runs compared").wait_for()
    assert wrong == []
    page.close()


def test_long_names_fit_on_a_narrow_screen(browser: Browser, tmp_path: Path) -> None:
    name = "y" * 200
    run = ScriptedRun(tmp_path / ("x" * 120), "n" * 100).begin()
    run.add(*({"folder": name, name: value} for value in (1.0, 2.0, 3.0)))
    for trial in range(3):
        run.form(trial, hosts=(name,))
        run.note(trial, 1, 2, 3, accuracy=0.1 * trial)
        run.succeed(trial, accuracy=0.2) if trial else run.fail(trial, f"ValueError: {name}")
    run.end()
    for directories in ([run.directory], [run.directory] * 2):
        path = write_report(directories, tmp_path / "report.html", HandClock())
        page = browser.new_page(viewport={"width": 420, "height": 900})
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-ready=yes]")
        assert page.evaluate("document.documentElement.scrollWidth") <= 420
        page.close()


def test_a_table_of_one_trial_shows_its_whole_row(browser: Browser, tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path, "run").begin()
    run.add({"x": 1.0})
    run.form(0)
    run.succeed(0, accuracy=0.2)
    run.end()
    page = browser.new_page(viewport={"width": 1300, "height": 1000})
    page.goto(write_report([run.directory], tmp_path / "report.html", HandClock()).as_uri())
    page.wait_for_selector("body[data-ready=yes]")
    table, row = page.locator(".table").bounding_box(), page.locator("[data-trial]").bounding_box()
    assert table is not None
    assert row is not None
    assert row["y"] + row["height"] <= table["y"] + table["height"]
    assert "scroll sideways" not in page.locator("#trials").inner_text()
    page.close()
