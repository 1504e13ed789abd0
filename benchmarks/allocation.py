"""Several calls on one set of slots: what each gets of it, how soon an urgent one starts, and what the sharing costs.

    python -m benchmarks.allocation [--agents 10000] [--trials 40000]

The shares are those of the product's state machine in virtual time, on 64 slots: two to twenty calls of weights 1 to 5,
with trials of 0.5 to 2 s that report and save each 0.5 s. The cost is that of a real coordinator with simulated agents,
as in `benchmarks.scaling`: CPU seconds within the allocator, of all that the coordinator's thread takes, while twenty
calls run trials that report ten times and end as soon as they have started.
"""

import argparse
import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.crowd import Crowd
from benchmarks.load import CountingCoordinator
from benchmarks.machine import at_most, show
from benchmarks.own_time import OwnTime
from sparktrain.base.clock import Clock
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.driver.agent_server import Server
from sparktrain.driver.run_request import RunRequest
from sparktrain.ops.simulation.shared_pool import MINUTE_S, SimulatedCall, VirtualPool
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.writer import Journal
from sparktrain.rundir.layout import RunLayout
from sparktrain.search.grid import SpaceSampler
from sparktrain.search.space import grid
from sparktrain.state.events import Allotment
from sparktrain.store.localfs import LocalStore
from tests.support.run_stages import plain_request

SLOTS = 64
MINUTES = 5
SHARE_TARGET = 2.0
"""Percent by which the slot-seconds of a call may differ from its weight, in each minute."""
URGENT_TARGET_S = 1.0
COST_TARGET = 5.0
"""Percent of the coordinator's CPU."""
CALLS = 20
REPORTS = 10
"""Reports of each trial, which ends as soon as it has started."""
JOIN_TIMEOUT_S = 600.0


def weight_of(number: int) -> float:
    """Weights 1 to 5, in turn."""
    return 1.0 + number % 5


def share_error(calls: int) -> float:
    """The largest difference of a call's slot-seconds in a minute from its weight, in percent."""
    simulated = [SimulatedCall(name=f"call-{number}", weight=weight_of(number)) for number in range(calls)]
    weights = sum(call.weight for call in simulated)
    uses = VirtualPool(simulated, SLOTS).run(MINUTES * MINUTE_S)
    shares = [(use.minutes, SLOTS * MINUTE_S * use.call.weight / weights) for use in uses]
    return 100 * max(abs(used / share - 1) for minutes, share in shares for used in minutes)


def urgent() -> tuple[float, int]:
    """The longest wait of urgent trials on a full pool, in seconds, and the steps that preempted trials repeat."""
    patient = SimulatedCall(name="patient", steps=(100, 200))
    later = [
        SimulatedCall(name=f"urgent-{number}", priority=1, trials=1, start_s=10.0 + 7.13 * number)
        for number in range(10)
    ]
    uses = VirtualPool([patient, *later], SLOTS).run(120.0)
    waits = [use.waited_s for use in uses[1:]]
    assert all(wait is not None for wait in waits), "an urgent trial has not started"
    return max(wait for wait in waits if wait is not None), sum(use.repeated_steps for use in uses)


def work_of(folder: str, number: int, trials: int, agents: int) -> RunRequest:
    """One of the calls, in a folder."""
    name = f"call-{number}"
    store = LocalStore(folder)
    identity = DriverIdentity(host="benchmark", pid=0, started=0.0, sparktrain="")
    journal, _ = Journal.claim(store, RunLayout(name).journal, identity)
    space = grid(x=list(range(trials)))
    spec = SweepSpec(name=name, metric="accuracy")
    work = plain_request(spec, space, SpaceSampler(space), store, journal, agents)
    return replace(work, allotment=Allotment(agents=agents, weight=weight_of(number)))


class Timed:
    """CPU seconds that a function takes, all its calls together."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.cpu_s = 0.0
        self.calls = 0

    def __call__(self, *arguments: Any) -> Any:
        started = time.thread_time()
        try:
            return self._function(*arguments)
        finally:
            self.cpu_s += time.thread_time() - started
            self.calls += 1


async def cost(clock: Clock, folder: str, calls: int, agents: int, trials: int) -> tuple[Timed, float, int]:
    """The allocator's CPU while the calls run, the coordinator's in seconds, and the events."""
    crowd = Crowd(agents, reports=REPORTS)
    coordinator = CountingCoordinator(Server(crowd, clock, {}, ()), clock, agents)
    machine: Any = coordinator._machine
    machine._allocate = timed = Timed(machine._allocate)
    await coordinator.open()
    attending = asyncio.create_task(crowd.attend())
    # Before they have all joined: on a busy machine that takes 10,000 agents longer than a lease, and the first ones
    # were dropped meanwhile.
    beating = asyncio.create_task(crowd.heartbeat())
    async with asyncio.timeout(JOIN_TIMEOUT_S):
        await crowd.join()
        await coordinator.complete.wait()
    started, crowd_s, events = time.process_time(), crowd.cpu_s, coordinator.events
    works = [work_of(folder, number, trials // calls, agents) for number in range(calls)]
    outcomes = await asyncio.gather(*(coordinator.run(work) for work in works))
    cpu_s = time.process_time() - started - (crowd.cpu_s - crowd_s)
    events = coordinator.events - events
    assert all(trial.status == "succeeded" for outcome in outcomes for trial in outcome.trials)
    await coordinator.close("measured")
    attending.cancel()
    beating.cancel()
    return timed, cpu_s, events


def rows(agents: int, trials: int) -> list[tuple[str, str, str]]:
    """The rows of this benchmark's table."""
    table = []
    for calls in (2, 5, 10, 20):
        error = share_error(calls)
        row = f"{calls} calls on {SLOTS} slots: worst minute of a call, from its weight"
        table.append((row, f"{error:.2f} %", at_most(error, SHARE_TARGET, " %")))
    wait_s, repeated = urgent()
    table.append(
        ("an urgent trial on a full pool starts after", f"{wait_s:.2f} s", at_most(wait_s, URGENT_TARGET_S, " s"))
    )
    table.append(("steps that preempted trials repeat", str(repeated), at_most(repeated, 0)))
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
        clock = OwnTime()
        timed, cpu_s, events = clock.run(cost(clock, folder, CALLS, agents, trials))
    percent = 100 * timed.cpu_s / cpu_s
    table += [
        (
            f"{CALLS} calls with {agents:,} agents: allocation, of the coordinator's CPU",
            f"{percent:.1f} %",
            at_most(percent, COST_TARGET, " %"),
        ),
        ("the coordinator", f"{cpu_s:.1f} s of CPU, {events / cpu_s:,.0f} events for each", ""),
        ("one allocation", f"{1e6 * timed.cpu_s / max(1, timed.calls):.0f} us, of {timed.calls:,}", ""),
    ]
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--trials", type=int, default=40_000)
    options = parser.parse_args()
    show("several calls on one set of slots", ("", "measured", "target"), rows(options.agents, options.trials))


if __name__ == "__main__":
    main()
