"""How far one coordinator goes: 2,000 simulated agents run 20,000 trials; the numbers of docs/scaling.md are for more.

    python -m benchmarks.scaling [--agents 10000] [--trials 100000]

Messages are encoded, decoded and checked as the product does it, without a network. CPU seconds are the coordinator's,
all its threads together: the agents' share of the process is subtracted. On a machine with other work they are the
honest measure, and wall time is not. Each part runs in a process of its own, so that its peak memory can be measured.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.crowd import Crowd
from benchmarks.load import CountingCoordinator, work_of
from benchmarks.machine import at_least, at_most, show
from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import RunId
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.driver.agent_server import LEASE_S, Server
from sparktrain.driver.run_request import RunRequest
from sparktrain.rundir.journal.reader import read
from sparktrain.rundir.layout import RunLayout
from sparktrain.state.events import RunLimits, RunStarted
from sparktrain.state.machine import Machine
from sparktrain.state.records import DriverStarted
from sparktrain.store.localfs import LocalStore

EVENTS_TARGET = 8000
"""Each CPU second."""
MEMORY_TARGET_GIB = 1.0
RESUME_TARGET_S = 10.0
JOIN_TIMEOUT_S = 600.0
JOURNAL = RunLayout("load").journal


class Stopwatch:
    """Wall time and CPU seconds since it was made; the CPU of a crowd does not count."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._started = time.perf_counter(), time.process_time() - crowd.cpu_s

    @property
    def wall_s(self) -> float:
        """Seconds of the wall clock."""
        return time.perf_counter() - self._started[0]

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the coordinator."""
        return time.process_time() - self._crowd.cpu_s - self._started[1]


async def driven(folder: str, agents: int, trials: int) -> dict[str, float]:
    """Join all agents, then run all trials."""
    return await measured(Crowd(agents), agents, work_of(folder, trials, agents), trials)


async def measured(crowd: Crowd, agents: int, work: RunRequest, trials: int) -> dict[str, float]:
    """Join the agents of `crowd`, then do `work` with them."""
    clock = SystemClock()
    coordinator = CountingCoordinator(Server(crowd, clock, {}, ()), clock, agents)
    await coordinator.open()
    attending = asyncio.create_task(crowd.attend())
    watch = Stopwatch(crowd)
    async with asyncio.timeout(JOIN_TIMEOUT_S):
        await crowd.join()
        await coordinator.complete.wait()
    beating = asyncio.create_task(crowd.heartbeat())
    join_s, watch, before = watch.cpu_s, Stopwatch(crowd), coordinator.events
    running = asyncio.create_task(coordinator.run(work))
    await asyncio.wait([running, asyncio.create_task(crowd.started_all.wait())], return_when=asyncio.FIRST_COMPLETED)
    launch = {"launch_s": watch.wall_s, "launch_cpu_s": watch.cpu_s}
    ran = await running
    events = coordinator.events - before
    whole = {"seconds": watch.wall_s, "cpu_s": watch.cpu_s, "events": events, "join_cpu_s": join_s}
    assert sum(trial.status == "succeeded" for trial in ran.trials) == trials
    await coordinator.close("measured")
    attending.cancel()
    beating.cancel()
    return {**launch, **whole, "answer_s": crowd.slowest_answer_s, "gib": _peak_gib()}


def resumed(folder: str) -> dict[str, float]:
    """Read the journal of the run in `folder`, and fold it into the state of another driver."""
    started, cpu = time.perf_counter(), time.process_time()
    records = read(LocalStore(folder), JOURNAL).records
    machine = Machine(LEASE_S)
    limits = RunLimits(spec=SweepSpec(name="load"))
    machine.handle(RunStarted(0.0, RunId("load"), limits, tuple(records), DriverStarted(plan="", at=0.0)))
    taken = {"seconds": time.perf_counter() - started, "cpu_s": time.process_time() - cpu}
    assert machine.last is not None
    return {**taken, "trials": len(machine.last.trials), "gib": _peak_gib()}


def _peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def part(name: str, folder: str, agents: int, trials: int) -> dict[str, float]:
    """The measurements of one part, in a separate process."""
    command = [sys.executable, "-m", "benchmarks.scaling", "--part", name, "--folder", folder]
    command += ["--agents", str(agents), "--trials", str(trials)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    measured: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return measured


def rows(agents: int, trials: int) -> list[tuple[str, str, str]]:
    """The rows of this benchmark's table."""
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
        run, again = part("driven", folder, agents, trials), part("resumed", folder, agents, trials)
        size = sum(path.stat().st_size for path in Path(folder, JOURNAL.path).iterdir())
    rate = run["events"] / run["cpu_s"]
    memory = [at_most(each["gib"], MEMORY_TARGET_GIB, " GiB") for each in (run, again)]
    return [
        ("events for each CPU second", f"{rate:,.0f}", at_least(rate, EVENTS_TARGET)),
        ("peak memory, the agents' side included", f"{run['gib']:.2f} GiB", memory[0]),
        ("events", f"{run['events']:,.0f}", ""),
        ("the whole run", f"{run['cpu_s']:.1f} s of CPU, {run['seconds']:.1f} s", ""),
        ("a join", f"{1e3 * run['join_cpu_s'] / agents:.2f} ms of CPU", ""),
        ("all agents have a trial", f"{run['launch_cpu_s']:.1f} s of CPU, {run['launch_s']:.1f} s", ""),
        ("the slowest answer to a heartbeat", f"{run['answer_s']:.2f} s", at_most(run["answer_s"], LEASE_S, " s")),
        (
            f"resume from a journal of {size / 2**20:.0f} MiB",
            f"{again['cpu_s']:.1f} s of CPU, {again['seconds']:.1f} s",
            at_most(again["cpu_s"], RESUME_TARGET_S, " s"),
        ),
        ("peak memory of the driver that resumes", f"{again['gib']:.2f} GiB", memory[1]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=2000)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--part", choices=("driven", "resumed"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part == "driven":
        print(json.dumps(asyncio.run(driven(given.folder, given.agents, given.trials))))
    elif given.part:
        print(json.dumps(resumed(given.folder)))
    else:
        title = f"{given.agents:,} simulated agents, {given.trials:,} trials, one coordinator"
        show(title, ("", "measured", "target"), rows(given.agents, given.trials))


if __name__ == "__main__":
    main()
