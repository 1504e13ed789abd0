"""One coordinator in hard cases: gangs of eight, a store that answers in 200 ms, a sampler that takes a second.

    python -m benchmarks.scaling_cases [--gangs 100] [--agents 500] [--slots 4]

1. `--gangs` gangs of eight members at a time, twice as many in all, each with snapshots in memory.
2. `--agents` agents run ten times as many trials of no length, with a store that takes 200 ms for each file.
3. `--slots` agents run three trials of 10 s each; the sampler computes for a second for each case, and learns.

CPU seconds are the coordinator's, see `benchmarks.scaling`. A wait is the time from the end of a member to the start of
the next one on its agent.
"""

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.crowd import Crowd
from benchmarks.load import work_of
from benchmarks.machine import at_most, show
from benchmarks.scaling import measured
from sparktrain.config.gang_spec import GangSpec
from sparktrain.driver.agent_server import LEASE_S
from sparktrain.driver.run_request import RunRequest
from sparktrain.search.grid import SpaceSampler
from sparktrain.search.sampler import Observation, PastSuggestion, Suggestion
from sparktrain.search.space import grid
from sparktrain.store.localfs import LocalStore
from tests.support.run_stages import with_spec

SIZE = 8
"""Members of a gang."""
STORE_S = 0.2
SUGGESTION_S = 1.0
TRIAL_S = 10.0


class SlowStore(LocalStore):
    """Takes a while for each file that it puts."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """See base class."""
        time.sleep(STORE_S)
        return super().put_if_absent(path, data)


class SlowSampler:
    """Computes for a second for each case, and is asked for few of them because it learns."""

    learns = True

    def __init__(self, trials: int) -> None:
        self.total = trials
        self._sampler = SpaceSampler(grid(x=list(range(trials))))

    def suggest(self, count: int) -> Suggestion:
        """See `Sampler`."""
        found = self._sampler.suggest(count)
        time.sleep(SUGGESTION_S * len(found.cases))
        return found

    def observe(self, observation: Observation) -> None:
        """See `Sampler`; takes no time."""

    def restore(self, history: Sequence[PastSuggestion | Observation]) -> None:
        """See `Sampler`; nothing came before."""


def gangs(folder: str, count: int) -> tuple[Crowd, int, RunRequest, int]:
    """As many gangs at a time, and twice as many in all."""
    agents, trials = count * SIZE, 2 * count
    work = work_of(folder, trials, agents)
    return (
        Crowd(agents, per_host=SIZE),
        agents,
        with_spec(work, replace(work.spec, gang=GangSpec(workers=SIZE))),
        trials,
    )


def slow_store(folder: str, agents: int) -> tuple[Crowd, int, RunRequest, int]:
    """Ten trials for each agent."""
    return Crowd(agents), agents, work_of(SlowStore(folder), 10 * agents, agents), 10 * agents


def slow_sampler(folder: str, agents: int) -> tuple[Crowd, int, RunRequest, int]:
    """Three trials for each agent."""
    work = replace(work_of(folder, 3 * agents, agents), sampler=SlowSampler(3 * agents))
    return Crowd(agents, hold_s=TRIAL_S), agents, work, 3 * agents


def row(title: str, case: Callable[[str, int], tuple[Crowd, int, RunRequest, int]], count: int) -> tuple[str, ...]:
    """The measurements of one case."""
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
        crowd, agents, work, trials = case(folder, count)
        found = asyncio.run(measured(crowd, agents, work, trials))
    return (
        title,
        f"{found['launch_cpu_s']:.2f} s, {found['launch_s']:.2f} s",
        f"{found['cpu_s']:.2f} s, {found['seconds']:.1f} s",
        f"{median(crowd.waits):.2f} s, {max(crowd.waits):.2f} s",
        f"{found['answer_s']:.2f} s",
        at_most(found["answer_s"], LEASE_S, " s"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gangs", type=int, default=100)
    parser.add_argument("--agents", type=int, default=500)
    parser.add_argument("--slots", type=int, default=4)
    given = parser.parse_args()
    rows = [
        row(f"{given.gangs:,} gangs of {SIZE} at a time", gangs, given.gangs),
        row(f"{given.agents:,} agents, a store of {STORE_S:g} s", slow_store, given.agents),
        row(f"{given.slots} agents, a sampler of {SUGGESTION_S:g} s", slow_sampler, given.slots),
    ]
    columns = ("", "launch: CPU, wall", "run: CPU, wall", "waits: median, longest", "slowest heartbeat", "target")
    show("One coordinator in hard cases", columns, rows)


if __name__ == "__main__":
    main()
