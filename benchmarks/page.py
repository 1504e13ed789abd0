"""The live page of a run: what it costs the driver with three readers, and how soon an event is on the screen.

    python -m benchmarks.page [--trials 100] [--seconds 20] [--stored 100000]

Trials that report each second run at once on this machine. The driver's CPU time is measured over the same number of
seconds without a page, and with one that three readers follow as browsers do. Then trials end one by one, and
Chromium, which shows the table, is asked for the row until it has the new status.

At last a page opens a run of many trials that has ended, beside the same rows as a table in a file of static HTML.
First paint is by the browser's own clock, and memory that of the process of its tab.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

import sparktrain as st
from benchmarks.machine import show
from benchmarks.report import stored_run
from sparktrain.views.page.live_page import LivePage

READERS = 3
CPU_SHARE, SCREEN_S = 0.02, 1.0
PAINT_RATIO, TAB_MB = 1.2, 300.0
READY = "body[data-ready=yes]"


def learn(x: int, folder: str, ctx: Any) -> dict[str, float]:
    """Report each second until a file has the number of the trial; then note the time, and end."""
    over, step = Path(folder, f"over-{x}"), 0
    at = time.monotonic()
    Path(folder, f"started-{x}").touch()
    while not over.exists() and not ctx.should_stop():
        if time.monotonic() >= at:
            ctx.report(step, y=float(step + x))
            step, at = step + 1, at + 1.0
        time.sleep(0.02)
    Path(folder, f"ended-{x}").write_text(repr(time.time()))
    return {"y": float(x)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--stored", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
        thread = threading.Thread(target=_train, args=(folder, given.trials))
        thread.start()
        try:
            _wait_for(lambda: len(list(Path(folder).glob("started-*"))) == given.trials)
            _spent(3.0)
            alone = _spent(given.seconds)
            with LivePage.start(str(Path(folder, "page")), on_stop=lambda trial: None) as page:
                for _ in range(READERS):
                    threading.Thread(target=_read, args=(page.reader_url,), daemon=True).start()
                _spent(3.0)
                with_page = _spent(given.seconds)
                seen = _seen(page.url, folder)
        finally:
            for x in range(given.trials):
                Path(folder, f"over-{x}").touch()
            thread.join()
    cost, median = (with_page - alone) / given.seconds, statistics.median(seen)
    rows = [
        ("driver without a page", f"{alone / given.seconds:.1%} of a core", ""),
        (f"driver with a page and {READERS} readers", f"{with_page / given.seconds:.1%} of a core", ""),
        ("what the page costs it", f"{cost:.2%}", _met(cost, CPU_SHARE, "2 %")),
        ("from a trial's end to its row, median", f"{median:.2f} s", _met(median, SCREEN_S, "1 s")),
        ("the slowest of them", f"{max(seen):.2f} s", _met(max(seen), SCREEN_S, "1 s")),
    ]  # fmt: skip
    show(f"{given.trials} running trials that report each second", ("", "", "target"), rows)
    if given.stored:
        show(f"{given.stored:,} trials of a run that has ended", ("", "", "target"), _stored_rows(given.stored))


def _stored_rows(trials: int) -> list[tuple[str, str, str]]:
    """The page of a run that has ended, beside static HTML."""
    with tempfile.TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
        directory, table = stored_run(Path(folder), trials, 0), Path(folder, "table.html")
        cells = "".join(f"<td>{text}</td>" for text in ("succeeded", "host-1", "0.0001", "0.25", "64", "relu", "0.5"))
        lines = "".join(f"<tr><td>{trial}</td>{cells}</tr>\n" for trial in range(trials))
        table.write_text(f"<!doctype html><table>{lines}</table>")
        static = _painted(table.as_uri(), "tr:last-child")
        with LivePage.start(directory) as page:
            _painted(page.url, READY)  # it reads the run once
            live = _painted(page.url, READY)
    ratio = live["paint_s"] / static["paint_s"]
    return [
        ("first paint, and the table is drawn", f"{live['paint_s']:.2f} s, {live['ready_s']:.2f} s", ""),
        ("first paint of static HTML, and it is loaded", f"{static['paint_s']:.2f} s, {static['ready_s']:.2f} s", ""),
        ("ratio of first paints", f"{ratio:.2f}", _met(ratio, PAINT_RATIO, f"{PAINT_RATIO:g}")),
        ("memory of the tab", f"{live['mb']:.0f} MB", _met(live["mb"], TAB_MB, f"{TAB_MB:g} MB")),
        ("memory of the tab with static HTML", f"{static['mb']:.0f} MB", ""),
    ]


def _painted(url: str, ready: str) -> dict[str, float]:
    """Seconds until a new browser paints first, and until `ready` is there; memory of the process of the tab."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as drive:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = drive.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
        tab = browser.new_page()
        tab.goto(url, timeout=120_000)
        tab.wait_for_selector(ready, timeout=120_000)
        ready_s = tab.evaluate("performance.now()") / 1000
        paint_s = tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000
        processes = psutil.Process().children(recursive=True)
        renderers = [process for process in processes if "--type=renderer" in process.cmdline()]
        tab_mb = max(process.memory_info().rss for process in renderers) / 1e6
        browser.close()
    return {"paint_s": paint_s, "ready_s": ready_s, "mb": tab_mb}


def _train(folder: str, trials: int) -> None:
    with st.pool(st.local(slots=trials), preload=[]) as pool:
        pool.sweep(
            learn, {"x": list(range(trials)), "folder": [folder]}, metric="y", mode="max", dir=folder, name="page",
            backend="none", progress=False,
        )  # fmt: skip


def _spent(seconds: float) -> float:
    """CPU seconds of this process, which is the driver, while that much time passes."""
    before = psutil.Process().cpu_times()
    time.sleep(seconds)
    after = psutil.Process().cpu_times()
    return (after.user + after.system) - (before.user + before.system)


def _read(url: str) -> None:
    """Follow the events of a page, as a browser does, in a process of its own."""
    address, _, token = url.partition("?token=")
    code = (
        "import sys, urllib.request as u; asked = u.Request(sys.argv[1], headers={sys.argv[2]: sys.argv[3]}); "
        "[None for _ in u.urlopen(asked)]"
    )
    subprocess.run([sys.executable, "-c", code, f"{address}events", "Authorization", f"Bearer {token}"], check=False)


def _seen(url: str, folder: str) -> list[float]:
    """Seconds from the end of each of ten trials until Chromium shows it."""
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as drive:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = drive.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
        tab = browser.new_page()
        tab.goto(url)
        tab.wait_for_selector(READY, timeout=60_000)
        for x in range(10):
            tab.get_by_label("Filter trials").fill(f"x={x}")
            tab.locator(f'[data-trial="{x}"]').filter(has_text="running").wait_for()
            Path(folder, f"over-{x}").touch()
            tab.locator(f'[data-trial="{x}"]').filter(has_text="succeeded").wait_for()
            found.append(time.time() - float(Path(folder, f"ended-{x}").read_text()))
        browser.close()
    return found


def _wait_for(condition: Any, limit_s: float = 180.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the trials did not start within {limit_s:g} s")
        time.sleep(0.1)


def _met(value: float, target: float, text: str) -> str:
    return f"at most {text}: {'met' if value <= target else 'MISSED'}"


if __name__ == "__main__":
    main()
