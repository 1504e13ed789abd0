"""Results and plots in a browser, on a light and on a dark page: colours, width, and nothing that acts."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from sparktrain.base.ids import TrialId
from sparktrain.results.sweep_result import SweepResult
from sparktrain.runs.sweep_outcome import SweepStatus
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.trial import TrialStatus
from sparktrain.views.notebook import charts

CHROMIUM = "/usr/bin/chromium"
HOSTILE = "<img src=x onerror=alert(1)>"
PAGE = '<!doctype html><body style="margin: 0; width: 300px; color: {ink}; background: {paper}">{content}</body>'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"], timeout=60_000
        )
        yield started
        started.close()


def content() -> str:
    trials = [
        TrialResult(
            id=TrialId(number), status=TrialStatus.SUCCEEDED, params={"lr": number, "name": HOSTILE + str(number)},
            metrics={HOSTILE: number / 10}, seconds=1.0,
        )
        for number in range(8)
    ]  # fmt: skip
    result = SweepResult(name=HOSTILE, status=SweepStatus.SUCCEEDED, metric=HOSTILE, mode="max", trials=tuple(trials))
    spans = [charts.Span(HOSTILE, at, at + 1.0, "succeeded", HOSTILE) for at in range(4)]
    return result._repr_html_() + charts.timeline(spans, ("seconds", "slot"))


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("ink", "paper"), [("rgb(20, 20, 20)", "#fff"), ("rgb(220, 220, 220)", "#111")])
def test_text_has_the_colour_of_the_page_and_nothing_acts(browser: Browser, ink: str, paper: str) -> None:
    page = browser.new_page(viewport={"width": 800, "height": 600})
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: wrong.append(request.url))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    page.set_content(PAGE.format(ink=ink, paper=paper, content=content()))
    assert page.locator("svg").count() == 2
    fills = page.eval_on_selector_all("svg text", "all => [...new Set(all.map(each => getComputedStyle(each).fill))]")
    assert fills == [ink]
    backgrounds = page.eval_on_selector_all(
        "div, p, svg, table, td", "all => [...new Set(all.map(each => getComputedStyle(each).backgroundColor))]"
    )
    assert backgrounds == ["rgba(0, 0, 0, 0)"]
    widths = page.eval_on_selector_all("svg", "all => all.map(each => each.getBoundingClientRect().width)")
    assert widths == [300, 300]  # they shrink with the cell
    assert page.locator("img, script").count() == 0
    assert HOSTILE in page.locator("b").first.inner_text()
    assert wrong == []
    page.close()
