"""The cost of a run's journal on HDFS and on the local disk, and the time to read 10,000 finished trials.

    python -m benchmarks.journal [--appends 200] [--trials 10000]

An append is durable when it returns. Events come in between, as the coordinator's do: what comes while
one group is written is the next group. The NameNode counts its own operations.
"""

import argparse
import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from benchmarks.machine import at_least, at_most, show
from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import Generation, RunId, TrialId
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.driver.journal_writer import JournalWriter
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.reader import read
from sparktrain.rundir.journal.writer import Journal
from sparktrain.rundir.layout import RunLayout
from sparktrain.state import commands as do
from sparktrain.state.events import RunLimits, RunStarted
from sparktrain.state.records import AnyRecord, DriverStarted, GangFormed, TrialConcluded, TrialsAdded
from sparktrain.state.recovery import recovered
from sparktrain.state.trial import TrialStatus
from sparktrain.store.base import Store
from sparktrain.store.url import open_store
from tests.support.hadoop import Hdfs, hdfs

APPEND_MS = 20.0
EVENTS_PER_S = 500.0
REPLAY_S = 5.0
LAYOUT = RunLayout("run")
BURST = 4000
"""Events of the test of group commit."""
OPERATIONS = (
    "Create", "AddBlock", "Fsync", "Complete", "Rename", "Rename2", "GetFileInfo", "GetListing", "Mkdirs", "Delete",
    "GetBlockLocations",
)  # fmt: skip
COUNTED_S = 25.0
"""The NameNode reports counts that are at least ten seconds old."""
BATCH = 100
"""Records in each batch of the journal that is read."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--appends", type=int, default=200)
    parser.add_argument("--trials", type=int, default=10_000)
    given = parser.parse_args()
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as name, hdfs(Path(name) / "hdfs") as cluster:
        places = {"HDFS": f"{cluster.url}/journals", "local disk": str(Path(name) / "journals")}
        rows = [row for place, url in places.items() for row in _rows(place, url, given.appends, given.trials)]
        rows.append(
            (
                "NameNode operations for the records of a trial, appended alone",
                f"{_operations(cluster, places['HDFS']):.1f}",
                "",
            )
        )
    show(f"The journal: {given.appends} appends, {given.trials:,} trials", ("", "", "target"), rows)


def _rows(place: str, url: str, appends: int, trials: int) -> list[tuple[str, str, str]]:
    taken = _appends(open_store(f"{url}/appends"), appends)
    events = asyncio.run(_burst(open_store(f"{url}/burst")))
    replay = _replay(open_store(f"{url}/replay"), trials)
    middle, tail = 1e3 * median(taken), 1e3 * quantiles(taken, n=20)[-1]
    limits = [at_most(middle, APPEND_MS, " ms"), at_least(events, EVENTS_PER_S), at_most(replay, REPLAY_S, " s")]
    if place != "HDFS":
        limits = ["", "", ""]
    return [
        (f"append, {place}", f"{middle:.1f} ms, 95 % within {tail:.1f}", limits[0]),
        (f"events under group commit, {place}", f"{events:,.0f} per second", limits[1]),
        (f"{trials:,} finished trials read and folded, {place}", f"{replay:.2f} s", limits[2]),
    ]


def _claimed(store: Store) -> Journal:
    return Journal.claim(store, LAYOUT.journal, DriverIdentity(host="benchmark", pid=0, started=0.0, sparktrain=""))[0]


def _trial(number: int) -> list[AnyRecord]:
    """The records of an ordinary trial."""
    trial = TrialId(number)
    return [
        TrialsAdded(cases=({"x": number, "dropout": 0.5},), exhausted=False, asked=1, observed=number),
        GangFormed(trial=trial, generation=Generation(1), hosts=("host-1",)),
        TrialConcluded(trial=trial, status=TrialStatus.SUCCEEDED, metrics={"accuracy": 0.5}, seconds=1.0),
    ]


def _appends(store: Store, count: int) -> list[float]:
    journal, taken = _claimed(store), []
    for number in range(count):
        started = time.perf_counter()
        journal.append(_trial(number))
        taken.append(time.perf_counter() - started)
    return taken


async def _burst(store: Store) -> float:
    """Events per second, from the first until all are durable."""
    writing: list[asyncio.Task[None]] = []
    scribe = JournalWriter(
        _claimed(store), [], lambda command: None, SystemClock(), lambda work: _beside(work, writing)
    )
    started = time.perf_counter()
    for number in range(BURST // 3):
        for record in _trial(number):
            scribe.take(do.WriteRecord(record))
        if not scribe.idle:
            _beside(scribe.write(_raise), writing)
        await asyncio.sleep(0.0005)
    await asyncio.gather(*writing)
    return BURST / (time.perf_counter() - started)


def _beside(work: Coroutine[None, None, None], tasks: list[asyncio.Task[None]]) -> None:
    tasks.append(asyncio.create_task(work))


def _raise(error: Exception, dropped: list[do.Command]) -> None:
    raise error


def _replay(store: Store, trials: int) -> float:
    journal = _claimed(store)
    records = [record for number in range(trials) for record in _trial(number)]
    for start in range(0, len(records), BATCH):
        journal.append(records[start : start + BATCH])
    started = time.perf_counter()
    opened = read(store, LAYOUT.journal)
    limits = RunLimits(spec=SweepSpec(name="run"))
    sweep = recovered(RunStarted(0.0, RunId("run"), limits, opened.records, DriverStarted(plan="", at=0.0)))
    taken = time.perf_counter() - started
    assert sum(trial.status is TrialStatus.SUCCEEDED for trial in sweep.trials.values()) == trials
    return taken


def _operations(cluster: Hdfs, url: str, appends: int = 50) -> float:
    journal = _claimed(open_store(f"{url}/operations"))
    journal.append(_trial(0))
    before = _calls(cluster)
    for number in range(1, appends + 1):
        journal.append(_trial(number))
    return (_calls(cluster) - before) / appends  # each append has the records of one trial


def _calls(cluster: Hdfs) -> int:
    """Client operations of all kinds that a store uses."""
    time.sleep(COUNTED_S)
    bean = "RpcDetailedActivityForPort" + cluster.url.rpartition(":")[2]
    counts = (cluster.jmx(cluster.namenode, bean, f"{name}NumOps") for name in OPERATIONS)
    return sum(int(count or 0) for count in counts)


if __name__ == "__main__":
    main()
