"""The progress in the output of a cell: each update is whole, and repeated without news."""

import queue
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from sparktrain.display.live import NotebookDisplay
from sparktrain.display.progress import Progress

WAIT_S = 20.0


class Page:
    """The display of one cell, as IPython hands it out."""

    def __init__(self) -> None:
        self.updates: queue.Queue[dict[str, str]] = queue.Queue()

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> "Page":
        assert raw
        assert display_id
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.updates.put(data)

    def next(self) -> dict[str, str]:
        return self.updates.get(timeout=WAIT_S)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    made = Page()
    ipython: Any = SimpleNamespace(display=made)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setattr(NotebookDisplay, "interval_s", 0.05)
    return made


def progress(done: int) -> Progress:
    return Progress(
        name="mnist", total=2, done=done, running=2 - done, queued=0, failed=0, lost=0, seconds=1.0, eta_s=None
    )


def test_updates_are_whole_and_are_repeated_without_news(page: Page) -> None:
    shown = NotebookDisplay(repeat_s=0.05)
    shown.start()
    shown.print_line("mnist: metric accuracy, higher is better")
    shown.update(progress(1))
    seen = [page.next() for _ in range(4)]
    while "1 of 2 trials done" not in seen[-1]["text/html"]:
        seen.append(page.next())
    repeated = [page.next() for _ in range(2)]
    assert repeated[0] == repeated[1] == seen[-1]
    assert "metric accuracy, higher is better" in repeated[0]["text/html"]
    assert repeated[0]["text/plain"].startswith("mnist: 1 of 2 trials done, 1 running")
    shown.update(progress(2))
    shown.close()
    last = {}
    while not page.updates.empty():
        last = page.updates.get()
    assert "metric accuracy" in last["text/html"]
    assert "2 of 2 trials done" in last["text/html"]


def test_the_first_lines_are_repeated_before_the_first_progress(page: Page) -> None:
    shown = NotebookDisplay(repeat_s=0.05)
    shown.start()
    shown.print_line("mnist: writes train, 200 rows")
    while "writes train" not in page.next()["text/html"]:
        pass
    again = page.next()
    assert "writes train" in again["text/html"]
    assert again["text/plain"] == "mnist: writes train, 200 rows"
    shown.close()


def test_two_runs_at_a_time_each_have_their_own_display(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [Page(), Page()]
    free = iter(pages)
    ipython: Any = SimpleNamespace(display=SimpleNamespace(display=lambda *_, **__: next(free)))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    runs = [NotebookDisplay(), NotebookDisplay()]
    for number, each in enumerate(runs):
        each.start()
        each.print_line(f"run {number}")
        each.update(progress(number))
    for each in runs:
        each.close()
    for number, each in enumerate(pages):
        texts = [each.updates.get()["text/html"] for _ in range(each.updates.qsize())]
        assert texts
        assert all(f"run {1 - number}" not in text for text in texts)
        assert f"{number} of 2 trials" in texts[-1]
