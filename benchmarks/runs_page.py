"""The page of a directory with thousands of runs: how soon Chromium paints it, and what it costs the runs' drivers.

    python -m benchmarks.runs_page [--ended 5000] [--live 20] [--seconds 20]

Ended runs of 12 trials are written as drivers do. Live ones are sweeps on this machine, each with a driver of its own,
and a trial that reports each second. The drivers' CPU time is measured over the same number of seconds without a page,
and with one that a browser shows. First paint is the mark `first-contentful-paint` of the browser's own clock, of the
page right after it has started, and of a reload once all runs are read. A filter waits for 120 ms without a key.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

import sparktrain as st
from benchmarks.machine import show
from sparktrain.runs.results_json import to_bytes
from sparktrain.views.page.live_page import LivePage
from tests.unit.driver.stored import ScriptedRun, looked_at

PAINT_S, DRIVER_SHARE, SCREEN_S = 1.5, 0.002, 3.0
TRIALS = 12
_DRIVE = "import sys; from benchmarks.runs_page import drive; drive(*sys.argv[1:])"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ended", type=int, default=5000)
    parser.add_argument("--live", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sparktrain-benchmark-") as folder, ExitStack() as stack:
        runs, signals = Path(folder, "runs"), Path(folder, "signals")
        signals.mkdir()
        write_ended(runs, given.ended)
        drivers = [_start(stack, runs, signals, number) for number in range(given.live)]
        try:
            _wait_for(lambda: len(list(signals.glob("started-*"))) == given.live)
            _spent(drivers, 5.0)
            alone = _spent(drivers, given.seconds)
            figures = _watched(runs, signals, drivers, given.ended + given.live, given.seconds)
        finally:
            Path(signals, "over").touch()
            for driver in drivers:
                driver.wait(60)
    cost = (figures["drivers_s"] - alone) / given.seconds / max(1, given.live)
    rows = [
        ("first paint, right after the start", f"{figures['first_s']:.2f} s", _met(figures["first_s"], PAINT_S)),
        ("all rows are read", f"{figures['read_s']:.1f} s", ""),
        ("first paint with all rows", f"{figures['paint_s']:.2f} s", _met(figures["paint_s"], PAINT_S)),
        ("their table is drawn", f"{figures['ready_s']:.2f} s", _met(figures["ready_s"], PAINT_S)),
        ("a filter over all rows, median", f"{figures['filter_s'] * 1000:.0f} ms", ""),
        ("from a run's end to its row", f"{figures['seen_s']:.2f} s", _met(figures["seen_s"], SCREEN_S)),
        ("a driver without a page", f"{alone / given.seconds / max(1, given.live):.2%} of a core", ""),
        ("what the page costs it", f"{cost:+.2%} of a core", _met(cost, DRIVER_SHARE, "0.2 %")),
        ("the process of the page", f"{figures['page_s'] / given.seconds:.1%} of a core", ""),
        ("its memory", f"{figures['page_mib']:.0f} MiB", ""),
    ]  # fmt: skip
    show(f"{given.ended:,} ended runs and {given.live} live ones in Chromium", ("", "", "target"), rows)


def write_ended(folder: Path, number: int) -> None:
    """Runs that have ended: one hundred of them as drivers write them, and the others as copies with other names."""
    draw = random.Random(1)
    folder.mkdir(parents=True)
    originals = [_written(folder, f"run-{place:05d}", draw) for place in range(min(100, number))]
    for place in range(len(originals), number):
        original, name = originals[place % len(originals)], f"run-{place:05d}"
        target = shutil.copytree(folder / original, folder / name, copy_function=os.link)
        for path in (target / "run.json", target / "results.json"):
            content = path.read_text().replace(f'"{original}"', f'"{name}"')
            path.unlink()  # the file itself is that of the original, too
            path.write_text(content)


def _written(folder: Path, name: str, draw: random.Random) -> str:
    run = ScriptedRun(folder, name, total=TRIALS)
    run.at += draw.uniform(0, 1e7)
    run.begin()
    run.add(*({"lr": 10 ** draw.uniform(-4, -1), "units": draw.choice([16, 32, 64])} for _ in range(TRIALS)))
    for trial in range(TRIALS):
        run.form(trial)
        run.at += draw.uniform(1, 60)
        run.succeed(trial, accuracy=draw.random())
    run.end()
    run.store.put_if_absent(run.layout.results, to_bytes(looked_at(run).as_outcome()))
    return name


def learn(x: int, folder: str, name: str, ctx: Any) -> dict[str, float]:
    """Report each second until a file has the name of the run, or all are to end."""
    Path(folder, f"started-{name}").touch()
    over, step = (Path(folder, "over"), Path(folder, f"over-{name}")), 0
    at = time.monotonic()
    while not any(path.exists() for path in over) and not ctx.should_stop():
        if time.monotonic() >= at:
            ctx.report(step, accuracy=0.5)
            step, at = step + 1, at + 1.0
        time.sleep(0.05)
    Path(folder, f"ended-{name}").write_text(repr(time.time()))
    return {"accuracy": 0.9}


def drive(runs: str, signals: str, name: str) -> None:
    """The process of a driver: a sweep of one trial."""
    st.sweep(
        learn, {"x": [1], "folder": [signals], "name": [name]}, metric="accuracy", mode="max", dir=runs, name=name,
        spark=st.local(slots=1), preload=[], backend="none", progress=False,
    )  # fmt: skip


def _start(stack: ExitStack, runs: Path, signals: Path, number: int) -> "subprocess.Popen[bytes]":
    driver = subprocess.Popen([sys.executable, "-c", _DRIVE, str(runs), str(signals), f"live-{number:02d}"])
    stack.callback(driver.wait)
    stack.callback(driver.terminate)
    return driver


def _spent(drivers: list["subprocess.Popen[bytes]"], seconds: float) -> float:
    """CPU seconds of the drivers while that much time passes."""
    processes = [psutil.Process(driver.pid) for driver in drivers]
    before = sum(map(_cpu, processes))
    time.sleep(seconds)
    return sum(map(_cpu, processes)) - before


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _watched(
    runs: Path, signals: Path, drivers: list["subprocess.Popen[bytes]"], number: int, seconds: float
) -> dict[str, float]:
    """What a browser sees, and what that costs."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
        tab = browser.new_page(viewport={"width": 1400, "height": 900})
        tab.set_default_timeout(120_000)
        started = time.monotonic()
        with LivePage.start(str(runs)) as page:
            first_s, _ = _painted(tab, page.url, since=started)
            tab.get_by_text(f"{number:,} runs", exact=False).first.wait_for()
            read_s = time.monotonic() - started
            tab.get_by_text(f"{len(drivers)} slots in use").wait_for()
            process = psutil.Process(page._process.pid)
            page_before, drivers_s = _cpu(process), _spent(drivers, seconds)
            page_s = _cpu(process) - page_before
            paint_s, ready_s = _painted(tab, page.url)
            figures = {
                "first_s": first_s, "read_s": read_s, "paint_s": paint_s, "ready_s": ready_s, "drivers_s": drivers_s,
                "page_s": page_s, "page_mib": process.memory_info().rss / 2**20,
                "filter_s": _filtered(tab), "seen_s": _seen(tab, signals),
            }  # fmt: skip
        browser.close()
    return figures


def _painted(tab: Any, url: str, since: float | None = None) -> tuple[float, float]:
    """Seconds to the first paint and to the table; with `since` that time before the browser starts to load counts."""
    before_s = 0.0 if since is None else time.monotonic() - since
    tab.goto(url)
    tab.wait_for_selector("body[data-ready=yes]")
    mark = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    # The table is there: the next frame shows it.
    ready_ms = tab.evaluate("new Promise(done => requestAnimationFrame(() => done(performance.now())))")
    return before_s + json.loads(str(tab.evaluate(mark))) / 1000, ready_ms / 1000


def _filtered(tab: Any) -> float:
    """Seconds that the table needs for a filter by text and by parameter."""
    code = """text => {
        const [box, words] = [document.querySelector("input[type=search]"), document.querySelector(".tools .muted")];
        const [before, at] = [words.textContent, performance.now()];
        box.value = text;
        box.dispatchEvent(new Event("input"));
        return new Promise((done) => {
            const look = () => words.textContent === before ? setTimeout(look, 1) : done(performance.now() - at);
            look();
        });
    }"""
    return statistics.median(
        tab.evaluate(code, text) / 1000 for text in ("units=32 lr<0.01", "run-0123", "", "gone", "")
    )


def _seen(tab: Any, signals: Path) -> float:
    """Seconds from the end of a trial of a live run until its row has the state."""
    tab.get_by_label("Filter runs").fill("live-00")
    tab.locator('[data-run="live-00"]').filter(has_text="running").wait_for()
    Path(signals, "over-live-00").touch()
    tab.locator('[data-run="live-00"]').filter(has_text="succeeded").wait_for()
    return time.time() - float(Path(signals, "ended-live-00").read_text())


def _wait_for(condition: Any, limit_s: float = 300.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the live runs did not start within {limit_s:g} s")
        time.sleep(0.1)


def _met(value: float, target: float, text: str = "") -> str:
    return f"at most {text or f'{target:g} s'}: {'met' if value <= target else 'MISSED'}"


if __name__ == "__main__":
    main()
