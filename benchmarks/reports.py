"""The cost of the reports of trials: what the driver spends to store them, their size, and the time to read them back.

    python -m benchmarks.reports [--reports 1000000] [--block 1000] [--trials 100]

A report has two metrics. The driver stores a block about every second, so that a million reports in blocks of a
thousand are those of a sweep that reports a thousand times a second for a quarter of an hour.
"""

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.machine import show
from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import Generation, Member, RunId, TrialId
from sparktrain.driver.metric_recorder import MetricRecorder
from sparktrain.rundir.layout import RunLayout
from sparktrain.rundir.metric_log import MetricLog
from sparktrain.runs.run_files import RunFiles
from sparktrain.state.outcome import Report
from sparktrain.store.url import open_store
from tests.unit.driver.journals import NoJournal

NAME = "run"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=int, default=1_000_000)
    parser.add_argument("--block", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=100)
    given = parser.parse_args()
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
        rows = [*_written(folder, given.reports, given.block, given.trials), *_read(folder)]
    show(f"{given.reports:,} reports of {given.trials:,} trials, in blocks of {given.block:,}", ("", ""), rows)


def _written(folder: str, count: int, block: int, trials: int) -> list[tuple[str, str]]:
    store, layout = open_store(folder), RunLayout(NAME)
    recorder = MetricRecorder(NoJournal(), MetricLog(store, layout), SystemClock())
    heard, stored = Spent(), Spent()
    for first in range(0, count, block):
        reports = [(number % trials, _report(number // trials, number)) for number in range(first, first + block)]
        heard.of(lambda: [recorder.record(_member(trial), [report]) for trial, report in reports])  # noqa: B023  # called at once
        stored.of(recorder.settle)
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    return [
        ("CPU in the event loop", f"{heard.cpu_s:.1f} s, {1e6 * heard.cpu_s / count:.1f} us for each report"),
        ("CPU in the journal's thread", f"{stored.cpu_s:.1f} s, {1e6 * stored.cpu_s / count:.1f} us for each report"),
        ("the longest append", f"{1e3 * stored.longest_s:.0f} ms"),
        ("stored", f"{size / 2**20:.1f} MiB in {len(files)} files, {size / count:.1f} bytes for each report"),
    ]


def _read(folder: str) -> list[tuple[str, str]]:
    read = Spent()
    read.of(lambda: RunFiles(str(Path(folder, NAME))).history())
    return [("read as history()", f"{read.longest_s:.1f} s, {read.cpu_s:.1f} s of CPU")]


class Spent:
    """CPU seconds of the process in calls, and the longest of them by the wall clock."""

    def __init__(self) -> None:
        self.cpu_s = self.longest_s = 0.0

    def of(self, work: Callable[[], object]) -> None:
        """Call `work`, and count what it costs."""
        cpu, started = time.process_time(), time.perf_counter()
        work()
        self.cpu_s += time.process_time() - cpu
        self.longest_s = max(self.longest_s, time.perf_counter() - started)


def _member(trial: int) -> Member:
    return Member(RunId(NAME), TrialId(trial), Generation(1))


def _report(step: int, number: int) -> Report:
    """Values with all their digits, as training has them."""
    metrics = {"loss": math.exp(-step / 5000) + math.sin(number) / 50, "val_accuracy": math.cos(number / 7) ** 2}
    return Report(step, metrics, 1_700_000_000.0 + number / 1000)


if __name__ == "__main__":
    main()
