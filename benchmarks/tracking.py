"""What callbacks and MLflow cost the driver for each report.

    python -m benchmarks.tracking [--trials 100] [--reports 200] [--batch 10]

A feed gets the reports of trials as the coordinator passes them on, in batches as agents send them, while the thread of
the callback works beside it. The cost is the time that the coordinator's thread spends in the feed. MLflow writes to a
database in a file.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.machine import at_most, show
from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import CHIEF, Generation, Member, RunId, TrialId
from sparktrain.config.tracking_options import MLflow
from sparktrain.driver.tracking.callback import Callback, TrackedRun
from sparktrain.driver.tracking.callback_feed import CallbackFeed
from sparktrain.driver.tracking.mlflow_tracker import MLflowTracker
from sparktrain.state.outcome import Report

MOST_MS = 1.0
"""The most that one report may cost the driver."""
LIMIT_S = 300.0
PAUSE_S = 0.005
"""Between two batches: the callback's thread works meanwhile."""
CLOCK = SystemClock()


def cost_ms(callbacks: list[Any], folder: str, trials: int, reports: int, batch: int) -> float:
    """Milliseconds that one report takes of the thread that passes it on."""
    run = TrackedRun(
        id=f"bench-{CLOCK.now():.0f}", name="bench", directory=str(Path(folder, "bench")), kind="sweep", function="f",
        metric="y", mode="max", started=CLOCK.wall(), resumed=False,
    )  # fmt: skip
    feed = CallbackFeed(run, callbacks, LIMIT_S)
    spent = 0.0
    for number in range(trials):
        member = Member(RunId("bench"), TrialId(number), Generation(1), CHIEF)
        feed.placed(member, {"lr": 0.1, "units": number})
        for first in range(0, reports, batch):
            steps = range(first, min(first + batch, reports))
            some = [Report(step, {"loss": 1.0 / (step + 1), "accuracy": 0.5}, CLOCK.wall()) for step in steps]
            started_at = CLOCK.now()
            feed.reported(member, some)
            spent += CLOCK.now() - started_at
            CLOCK.pause(PAUSE_S)
    feed.close()
    return spent * 1000 / (trials * reports)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--reports", type=int, default=200)
    parser.add_argument("--batch", type=int, default=10)
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        options = MLflow(uri=f"sqlite:///{folder}/mlflow.db", experiment="bench")
        cases: list[tuple[str, list[Any]]] = [
            ("no callback", []),
            ("an empty callback", [Callback()]),
            ("MLflow", [MLflowTracker(options, options.address())]),
        ]
        for name, callbacks in cases:
            cost = cost_ms(callbacks, folder, given.trials, given.reports, given.batch)
            rows.append((f"{name}: one report", f"{cost:.4f} ms", at_most(cost, MOST_MS, " ms")))
    title = f"{given.trials} trials of {given.reports} reports with two metrics, {given.batch} in a batch"
    show(title, ("", "measured", "target"), rows, "Means over all reports, MLflow's import beside them included.")


if __name__ == "__main__":
    main()
