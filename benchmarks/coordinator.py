"""The coordinator under load: 1,000 simulated agents run 10,000 trials over the in-memory transport, on one core.

    python -m benchmarks.coordinator [--agents 1000] [--trials 10000]

An event is what is folded into the state: an agent's join, readiness, sign of life, start, report or end, and what the
sampler suggests. Agents answer at once, so that the coordinator is all that is measured; its codec is part of that.
"""

import argparse
import asyncio
import os
import resource
import tempfile
from contextlib import suppress

from benchmarks.machine import show
from sparktrain.clock import SystemClock
from sparktrain.driver.coordinator import Coordinator
from sparktrain.driver.progress import NullDisplay
from sparktrain.driver.server import Server
from sparktrain.driver.work import Work
from sparktrain.ids import AgentId
from sparktrain.protocol import messages as m
from sparktrain.protocol.memory import MemoryTransport
from sparktrain.protocol.transport import LinkClosedError
from sparktrain.search.grid import SpaceSampler
from sparktrain.search.space import grid
from sparktrain.spec.sweep import SweepSpec
from sparktrain.state import events as on
from sparktrain.state.outcome import Outcome, Report
from sparktrain.store.layout import RunLayout
from sparktrain.store.localfs import LocalStore

REPORTS = 2
"""Of each trial."""
TARGET = 2000
LIMIT_GIB = 2.0


class CountingCoordinator(Coordinator):
    """Counts the events that it folds."""

    events = 0

    def feed(self, event: on.Event) -> None:
        self.events += 1
        super().feed(event)


async def agent(transport: MemoryTransport, slot: int) -> None:
    """Joins, and answers each start with a few reports and a result, and each sign of life at once."""
    link = await transport.dialer(f"agent-{slot}").attend(60.0)
    link.post(m.Join(AgentId(f"a{slot}"), slot, f"host-{slot}", slot, {}))
    with suppress(LinkClosedError):
        while True:
            match await link.receive():
                case m.Welcome():
                    link.post(m.Ready())
                case m.Prepare(run=run):
                    link.post(m.Ready(run))
                case m.StartMember(member=member):
                    link.post(m.MemberStarted(member, slot))
                    for step in range(REPORTS):
                        link.post(m.MemberReported(member, (Report(step, {"loss": 1.0 / (step + 1)}),)))
                    link.post(m.MemberEnded(member, Outcome(0.0, metrics={"accuracy": 0.5})))
                    link.post(m.MemberStored(member))
                case m.Dismiss(reason=reason):
                    link.post(m.Leave(reason))


async def measure(agents: int, trials: int) -> tuple[int, float]:
    """Events, and the seconds that they took."""
    clock, transport = SystemClock(), MemoryTransport()
    coordinator = CountingCoordinator(Server(transport.listener, clock, {}, ()), clock)
    await coordinator.open()
    begun = clock.now()
    crowd = [asyncio.create_task(agent(transport, slot)) for slot in range(agents)]
    sampler = SpaceSampler(grid(x=list(range(trials))))
    with tempfile.TemporaryDirectory() as folder:
        work = Work(
            spec=SweepSpec(name="load", metric="accuracy"),
            code=m.Code("", b""),
            preload=(),
            sampler=sampler,
            store=LocalStore(folder),
            layout=RunLayout("load"),
            total=trials,
            agents=agents,
            watcher=NullDisplay(),
        )
        ran = await coordinator.run(work)
        seconds = clock.now() - begun
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
        ("events/s", f"{events / seconds:,.0f}", f"at least {TARGET:,}"),
        ("peak memory", f"{gib:.2f} GiB", f"at most {LIMIT_GIB:g} GiB"),
        ("events", f"{events:,}", ""),
        ("seconds", f"{seconds:.1f}", ""),
    ]
    title = f"{given.agents:,} simulated agents, {given.trials:,} trials, one core"
    show(title, ("", "measured", "target"), rows, "simulated agents share the core and the loop with the coordinator")


if __name__ == "__main__":
    main()
