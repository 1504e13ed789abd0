"""The coordinator under load: 1,000 simulated agents run 10,000 trials over the in-memory transport, on one core.

    python -m benchmarks.coordinator [--agents 1000] [--trials 10000]

An event is what is folded into the state: an agent's join, readiness, heartbeat, start, report or end, and what the
sampler suggests. Agents answer at once, so that the coordinator is all that is measured; its codec is part of that.
"""

import argparse
import asyncio
import os
import resource
import tempfile

from benchmarks.load import CountingCoordinator, SimulatedAgent, work_of
from benchmarks.machine import at_least, at_most, show
from sparktrain.base.clock import SystemClock
from sparktrain.driver.agent_server import Server
from sparktrain.protocol.memory_transport import MemoryTransport

TARGET = 2000
"""Events each second."""
LIMIT_GIB = 2.0


async def measure(agents: int, trials: int) -> tuple[int, float]:
    """Events, and the seconds that they took."""
    clock, transport = SystemClock(), MemoryTransport()
    coordinator = CountingCoordinator(Server(transport.listener, clock, {}, ()), clock, agents)
    await coordinator.open()
    started_at = clock.now()
    dialers = [transport.dialer(f"agent-{slot}") for slot in range(agents)]
    crowd = [asyncio.create_task(SimulatedAgent(dialer, slot, clock).run()) for slot, dialer in enumerate(dialers)]
    with tempfile.TemporaryDirectory() as folder:
        ran = await coordinator.run(work_of(folder, trials, agents))
        seconds = clock.now() - started_at
    assert sum(trial.status == "succeeded" for trial in ran.trials) == trials
    await coordinator.close("measured")
    await asyncio.gather(*crowd)
    return coordinator.events, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=10_000)
    given = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    events, seconds = asyncio.run(measure(given.agents, given.trials))
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    rows = [
        ("events/s", f"{events / seconds:,.0f}", at_least(events / seconds, TARGET)),
        ("peak memory", f"{gib:.2f} GiB", at_most(gib, LIMIT_GIB, " GiB")),
        ("events", f"{events:,}", ""),
        ("seconds", f"{seconds:.1f}", ""),
    ]
    title = f"{given.agents:,} simulated agents, {given.trials:,} trials, one core"
    show(
        title,
        ("", "measured", "target"),
        rows,
        "The agents share the core and the loop with the coordinator.",
    )


if __name__ == "__main__":
    main()
