"""The report of a large run: the time and memory to make it, its size, and the time until Chromium shows it.

    python -m benchmarks.report [--trials 10000] [--reports 1000000]

The report is made in a process of its own. First paint is the mark `first-contentful-paint` of the browser's own clock,
of a page that it opens from a file.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.machine import show
from sparktrain.rundir.report_parts import step_row
from tests.unit.driver.stored import ScriptedRun

MAKE_S, MAKE_GIB, SIZE_MB, PAINT_S = 20.0, 1.0, 8.0, 1.5
_MAKE = "import sys; from benchmarks.report import make; make(*sys.argv[1:])"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--reports", type=int, default=1_000_000)
    given = parser.parse_args()
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
        directory, page = stored_run(Path(folder), given.trials, given.reports), Path(folder, "report.html")
        made = subprocess.run(
            [sys.executable, "-c", _MAKE, directory, str(page)], check=True, capture_output=True, text=True
        )
        figures = json.loads(made.stdout)
        size_mb, paint_s, ready_s = page.stat().st_size / 1e6, *_painted(page)
    rows = [
        ("made", f"{figures['seconds']:.1f} s", _met(figures["seconds"], MAKE_S, "s")),
        ("resident memory", f"{figures['gib']:.2f} GiB", _met(figures["gib"], MAKE_GIB, "GiB")),
        ("size", f"{size_mb:.1f} MB", _met(size_mb, SIZE_MB, "MB")),
        ("first paint", f"{paint_s:.2f} s", _met(paint_s, PAINT_S, "s")),
        ("all views drawn", f"{ready_s:.2f} s", ""),
    ]
    show(f"the report of {given.trials:,} trials with {given.reports:,} reports", ("", "", "target"), rows)


def make(directory: str, page: str) -> None:
    """Make the report, and print what that took."""
    from sparktrain.views.report.writing import write_report

    started_at = time.perf_counter()
    write_report([directory], page)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": time.perf_counter() - started_at, "gib": peak}))


def _met(value: float, target: float, unit: str) -> str:
    return f"at most {target:g} {unit}: {'met' if value <= target else 'MISSED'}"


def stored_run(folder: Path, trials: int, reports: int) -> str:
    """A search over four parameters with failures and stopped trials."""
    run, draw = ScriptedRun(folder / "runs", "large", total=trials).begin(), random.Random(1)
    run.add(
        *(
            {
                "lr": 10 ** draw.uniform(-5, 0),
                "dropout": draw.random() / 2,
                "units": draw.choice([32, 64, 128]),
                "act": draw.choice(["relu", "gelu"]),
            }
            for _ in range(trials)
        )
    )
    steps = max(1, reports // trials)
    for first in range(0, trials, 100):
        rows = []
        with run.together():
            for trial in range(first, min(trials, first + 100)):
                run.at += 0.5
                run.form(trial, hosts=(f"host-{trial % 32}",))
                best = draw.random()
                for step in range(1, steps + 1):
                    rows.append(step_row(trial, 1, 0, step, run.at, {"accuracy": best * step / steps}))
                if trial % 40 == 0:
                    run.fail(trial)
                else:
                    run.succeed(trial, accuracy=best)
        run.record(rows)
    run.end()
    return run.directory


def _painted(page: Path) -> tuple[float, float]:
    """Seconds until the first paint, and until all views are drawn."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as drive:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = drive.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
        tab = browser.new_page()
        tab.goto(page.as_uri())
        tab.wait_for_selector("body[data-ready=yes]", timeout=120_000)
        ready = tab.evaluate("performance.now()")
        paint = tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        browser.close()
    return paint / 1000, ready / 1000


if __name__ == "__main__":
    main()
