"""100,000 short trials in one sweep: the cost for its driver, and for a driver that resumes it.

    python -m benchmarks.short_trials [--trials 100000] [--agents 8]

Simulated agents answer at once, over the in-memory transport; the journal is on the local disk. Each part runs in
a separate process, so that its peak memory can be measured. The rival puts the same records, in groups of the same
size, as rows into SQLite.
"""

import argparse
import asyncio
import json
import resource
import sqlite3
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from benchmarks.load import CountingCoordinator, SimulatedAgent, work_of
from benchmarks.machine import at_most, show
from benchmarks.resume import replayed
from sparktrain.base.clock import Clock, SystemClock
from sparktrain.base.decoding import json_decoder
from sparktrain.driver.agent_server import Server
from sparktrain.driver.coordinator import TICK_S, ActiveRun
from sparktrain.protocol.memory_transport import MemoryTransport
from sparktrain.rundir.journal.reader import read
from sparktrain.rundir.layout import RunLayout
from sparktrain.state.records import AnyRecord
from sparktrain.store.localfs import LocalStore

TRIALS = 100_000
WRITTEN_TARGET = 3.0
"""All bytes written for the journal, divided by the bytes of its records."""
MEMORY_TARGET_GIB = 1.0
RESUME_TARGET_S = 10.0
DECODE_TARGET = 1.5
"""Limit of a resume, as a multiple of the time to decode its journal."""
PROGRESS_TARGET = 1.0
"""Percent of a core."""
JOURNAL = RunLayout("load").journal
CHECKSUM = 9
"""Bytes of it before each record."""


class CountingStore(LocalStore):
    """Counts the bytes that are put, and those of records that come for the first time."""

    put = 0
    records = 0
    groups = 0

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.put += len(data)
        if "/batch-" in path:
            self.groups += 1
            self.records += len(data) - data.index(b"\n") - 1
        return super().put_if_absent(path, data)


class WatchedCoordinator(CountingCoordinator):
    """Measures the processor time of its newest progress updates."""

    def __init__(self, server: Server, clock: Clock, agents: int) -> None:
        super().__init__(server, clock, agents)
        self._looks: deque[float] = deque(maxlen=100)

    def _show_progress(self, run: ActiveRun) -> None:
        started_at = time.thread_time()
        super()._show_progress(run)
        self._looks.append(time.thread_time() - started_at)

    @property
    def percent(self) -> float:
        """The share of a core for these updates, one per tick."""
        return 100 * sum(self._looks) / len(self._looks) / TICK_S


async def driven(folder: str, trials: int, agents: int) -> dict[str, float]:
    """One run of all trials, from its first event to its result."""
    clock, transport = SystemClock(), MemoryTransport()
    coordinator = WatchedCoordinator(Server(transport.listener, clock, {}, ()), clock, agents)
    await coordinator.open()
    dialers = [transport.dialer(f"agent-{slot}") for slot in range(agents)]
    crowd = [asyncio.create_task(SimulatedAgent(dialer, slot, clock).run()) for slot, dialer in enumerate(dialers)]
    store = CountingStore(folder)
    started_at = time.perf_counter()
    ran = await coordinator.run(work_of(store, trials, agents))
    seconds = time.perf_counter() - started_at
    assert sum(trial.status == "succeeded" for trial in ran.trials) == trials
    await coordinator.close("measured")
    await asyncio.gather(*crowd)
    return {
        "seconds": seconds,
        "written": store.put / store.records,
        "groups": store.groups,
        "records_mib": store.records / 2**20,
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "progress": coordinator.percent,
    }


def resumed(folder: str, trials: int) -> dict[str, float]:
    """Read and fold the same number of finished trials in another driver."""
    seconds, size = replayed(folder, trials)
    return {
        "seconds": seconds,
        "decode_s": min(decoded_s(folder) for _ in range(3)),
        "mib": size / 2**20,
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def decoded_s(folder: str) -> float:
    """Seconds to read the same files with msgspec alone: what no driver that resumes can leave out."""
    decoder = json_decoder(AnyRecord, strict=False)
    started_at = time.perf_counter()
    records: list[AnyRecord] = []
    for file in Path(folder).glob("*/journal/*-*-*"):
        _, *lines = file.read_bytes().splitlines()
        records += [decoder.decode(line[CHECKSUM:]) for line in lines]
    assert records
    return time.perf_counter() - started_at


def rival(folder: str, groups: float) -> dict[str, float]:
    """The records of the journal in `folder` as rows of SQLite, one transaction for each group."""
    rows = [(msgspec.json.encode(record),) for record in read(LocalStore(folder), JOURNAL).records]
    size = max(1, round(len(rows) / groups))
    before = _written()
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as elsewhere:
        database = sqlite3.connect(Path(elsewhere, "journal.db"))
        database.execute("pragma journal_mode=wal")
        database.execute("pragma synchronous=off")  # only bytes are counted
        database.execute("create table records (number integer primary key, record blob)")
        for start in range(0, len(rows), size):
            database.executemany("insert into records (record) values (?)", rows[start : start + size])
            database.commit()
        database.close()
        return {"written": (_written() - before) / sum(len(row[0]) for row in rows)}


def _written() -> int:
    """Bytes that this process has written."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("wchar")).split()[1])


def part(name: str, folder: str, *values: float) -> dict[str, float]:
    """The measurements of one part, in a separate process."""
    command = [sys.executable, "-m", "benchmarks.short_trials", "--part", name, "--folder", folder]
    command += ["--values", *(str(int(value)) for value in values)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    measured: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return measured


def rows(trials: int, agents: int) -> list[tuple[str, str, str]]:
    """The rows of this benchmark's table."""
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
        ours = part("driven", folder, trials, agents)
        other = part("rival", folder, ours["groups"])
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
        again = part("resumed", folder, trials)
    memory = [at_most(each["gib"], MEMORY_TARGET_GIB, " GiB") for each in (ours, again)]
    limits = at_most(ours["progress"], PROGRESS_TARGET, " %"), at_most(again["seconds"], RESUME_TARGET_S, " s")
    size = f"{ours['records_mib']:.0f} MiB of records"
    return [
        (f"journal: written for {size}", f"{ours['written']:.2f} times", at_most(ours["written"], WRITTEN_TARGET)),
        ("rival: SQLite, a transaction for each group", f"{other['written']:.2f} times", ""),
        ("peak memory of the driver", f"{ours['gib']:.2f} GiB", memory[0]),
        ("progress at the end", f"{ours['progress']:.2f} % of a core", limits[0]),
        (f"resumed, a journal of {again['mib']:.0f} MiB", f"{again['seconds']:.2f} s", limits[1]),
        ("limit: the same bytes decoded by msgspec alone", f"{again['decode_s']:.2f} s", ""),
        (
            "ratio",
            f"{again['seconds'] / again['decode_s']:.2f}",
            at_most(again["seconds"] / again["decode_s"], DECODE_TARGET),
        ),
        ("peak memory of the driver that resumes", f"{again['gib']:.2f} GiB", memory[1]),
        ("the whole run", f"{ours['seconds']:.0f} s", ""),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--part", choices=("driven", "resumed", "rival"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--values", type=int, nargs="*", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part == "driven":
        print(json.dumps(asyncio.run(driven(given.folder, *given.values))))
    elif given.part:
        print(json.dumps({"resumed": resumed, "rival": rival}[given.part](given.folder, *given.values)))
    else:
        title = f"{given.trials:,} short trials of {given.agents} simulated agents"
        show(title, ("", "measured", "target"), rows(given.trials, given.agents))


if __name__ == "__main__":
    main()
