"""How soon a run continues after its driver was killed, and the cost of resuming 10,000 finished trials.

    python -m benchmarks.resume [--kills 3] [--trials 10000]

The driver of a gang of two is killed in the middle of its training, and restarted at once: Spark's own start is in
the time until the next step. The journal of the finished trials is written as a driver writes it, and read by another.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from benchmarks.machine import at_most, show
from benchmarks.session import stage
from sparktrain.base.garbage import uncollected
from sparktrain.base.ids import Generation, TrialId
from sparktrain.display.progress import NullDisplay
from sparktrain.driver.finish import finished
from sparktrain.driver.journal_writer import COMPACT_AFTER, JournalPort, next_compaction
from sparktrain.driver.options import SweepOptions
from sparktrain.driver.prepare.attached_run import attach
from sparktrain.driver.prepare.checked_call import CheckedCall, compose
from sparktrain.driver.prepare.naming import take_name
from sparktrain.driver.prepare.owned_run import claim
from sparktrain.driver.prepare.ready_run import request_of
from sparktrain.runs.history import this_driver
from sparktrain.search.space import grid
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.machine import Machine
from sparktrain.state.records import AnyRecord, GangFormed, TrialConcluded, TrialsAdded
from sparktrain.state.recovery import compacted
from sparktrain.state.trial import TrialStatus
from tests.support import drill
from tests.support.functions import square
from tests.support.local_spark import LOCAL_CLUSTER
from tests.support.mortal import Mortal
from tests.support.run_stages import requested

RESUME_TARGET_S = 20.0
REPLAY_TARGET_S = 5.0
TOGETHER = 10
"""How many trials share a batch of records."""
LEASE_S = 15.0


def resumed(folder: Path, kills: int) -> list[float]:
    """Seconds from each of `kills` kills of the driver to the next training step."""
    moments, found = [], []
    driver = Mortal("gang", folder).start()
    try:
        for generation in range(1, kills + 1):
            at = (drill.notes(folder, "step").get((generation - 1, 0)) or [0])[-1]
            first = lambda step=at, now=generation: drill.notes(folder, "step").get((now, 0), [0])[-1] > step  # noqa: E731
            driver.wait(first, "a step")
            moments.append(time.time())
            driver.strike("python")
            driver = Mortal("gang", folder).start()
        driver.result()
    finally:
        driver.close()
    for generation, moment in enumerate(moments, 2):
        steps = (float(path.read_text()) for path in folder.glob(f"{generation}.0.step-*"))
        found.append(min(steps) - moment)
    return found


def plain(folder: Path) -> float:
    """Seconds that Spark alone needs for a session, executors, and a first Python task on each."""
    started_at = time.time()
    driver = Mortal("benchmarks.resume:two_tasks", folder).start()
    try:
        return float(driver.result()) - started_at
    finally:
        driver.close()


def two_tasks(folder: Path) -> float:
    """Run in a driver: the moment at which two Python tasks have run."""
    spark = SparkSession.getActiveSession()
    assert spark is not None
    stage(spark, 2, lambda _: {})
    return time.time()


def call(folder: str, trials: int) -> CheckedCall:
    """The call of a user, which is the same each time."""
    options = SweepOptions(metric="y", mode="max", name="replayed", dir=folder, backend="none", preload=[], seed=1)
    return compose(square, grid(x=list(range(trials))), options)


def write(book: JournalPort, first_record: AnyRecord, cases: Sequence[dict[str, object]]) -> None:
    """The journal of a sweep in which only the last trial has no result."""
    written: list[AnyRecord] = []
    compact_at = COMPACT_AFTER

    def add(records: list[AnyRecord]) -> None:
        book.append(records)
        written.extend(records)

    add([first_record])
    for start in range(0, len(cases), TOGETHER):
        these = [TrialId(number) for number in range(start, min(start + TOGETHER, len(cases)))]
        done = start + len(these) == len(cases)
        add([TrialsAdded(cases=tuple(cases[start : start + TOGETHER]), exhausted=done, asked=TOGETHER, observed=start)])
        add([GangFormed(trial=trial, generation=Generation(1), hosts=("host",)) for trial in these])
        add([concluded(trial) for trial in these[: len(these) - done]])
        if len(written) >= compact_at:
            written[:] = compacted(written)
            book.compaction().write(written)
            compact_at = next_compaction(len(written))


def concluded(trial: TrialId) -> TrialConcluded:
    return TrialConcluded(trial=trial, status=TrialStatus.SUCCEEDED, metrics={"y": float(trial)}, seconds=0.1)


def replayed(folder: str, trials: int) -> tuple[float, int]:
    """Seconds from the call to the first commands for agents; bytes of the journal."""
    work = requested(call(folder, trials), 2)
    write(work.owned.journal, work.driver_started, list(call(folder, trials).definition.space))
    started_at = time.perf_counter()
    run = attach(call(folder, trials))
    assert finished(run) is None
    work = request_of(claim(take_name(run), this_driver()), 2, NullDisplay())
    machine = Machine(LEASE_S)
    layout = run.definition.layout
    started = on.RunStarted(0.0, layout.path, work.limits(), work.owned.contents.records, work.driver_started)  # type: ignore[arg-type]
    with uncollected():  # as in the coordinator
        commands = machine.handle(started)
    seconds = time.perf_counter() - started_at
    assert [each.trial for each in commands if isinstance(each, do.SweepCheckpoints)] == [trials - 1]
    return seconds, sum(path.stat().st_size for path in Path(folder, layout.journal.path).iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--trials", type=int, default=10_000)
    given = parser.parse_args()
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
        replay_s, size = replayed(folder, given.trials)
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
        found = sorted(resumed(Path(folder), given.kills))
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
        own = plain(Path(folder))
    spread = f"{found[0]:.1f} to {found[-1]:.1f} s, {len(found)} kills"
    again = "SIGKILL of a gang's driver to its next step"
    rows = [
        (again, f"{median(found):.1f} s", spread, at_most(median(found), RESUME_TARGET_S, " s")),
        ("a process, a session and a first task, by Spark alone", f"{own:.1f} s", "", ""),
        (
            f"{given.trials:,} finished trials replayed",
            f"{replay_s:.2f} s",
            f"a journal of {size / 2**20:.1f} MiB",
            at_most(replay_s, REPLAY_TARGET_S, " s"),
        ),
    ]
    show(f"A run that has lost its driver, {LOCAL_CLUSTER}", ("", "median", "", "target"), rows)


if __name__ == "__main__":
    main()
