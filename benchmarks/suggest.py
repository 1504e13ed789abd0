"""What a suggestion costs: the time that a sampler computes, and the time that a free slot waits for it.

    python -m benchmarks.suggest [--history 100 1000] [--trials 30] [--seconds 0.3]

A coordinator runs trials of `--seconds` on one simulated agent, with a history of finished trials behind it. The slot's
wait is the time from the end of a trial until the agent gets the next one, over a transport in memory; that of a grid
beside it is what the coordinator itself takes. Resuming is the time to restore the sampler of a run.
"""

import argparse
import asyncio
import random
import tempfile
from dataclasses import replace
from statistics import median

from benchmarks.load import SimulatedAgent, work_of
from benchmarks.machine import at_most, show
from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import Member, TrialId
from sparktrain.config.distribution import choice, loguniform, uniform
from sparktrain.driver.agent_server import Server
from sparktrain.driver.coordinator import Coordinator
from sparktrain.protocol import messages as m
from sparktrain.protocol.memory_transport import MemoryTransport
from sparktrain.protocol.transport import Link
from sparktrain.search.grid import SpaceSampler
from sparktrain.search.named_samplers import SamplerChoice
from sparktrain.search.optuna_sampler import Goal
from sparktrain.search.sampled_space import SampledSpace, space
from sparktrain.search.sampler import Observation, ObservedStatus, PastSuggestion, Sampler
from sparktrain.search.space import grid
from sparktrain.state.outcome import Outcome

WAIT_MS = 5.0
"""The most that a suggestion of TPE may cost a slot."""
RESTORE_S = 10.0
CLOCK = SystemClock()


def searched() -> SampledSpace:
    """Ten parameters."""
    named = {f"x{number}": uniform(0, 1) for number in range(8)}
    found = space({**named, "lr": loguniform(1e-5, 1), "kind": choice(["a", "b", "c"])})
    assert isinstance(found, SampledSpace)
    return found


def history_of(trials: int) -> list[PastSuggestion | Observation]:
    """A finished search."""
    source, over = random.Random(1), searched()
    found: list[PastSuggestion | Observation] = []
    for number in range(trials):
        case = over.draw(source) or {}
        found.append(PastSuggestion(TrialId(number), (case,), False))
        end = Observation(TrialId(number), case, ObservedStatus.SUCCEEDED, {"accuracy": source.random()})
        found.append(end)
    return found


def restored(name: str, history: list[PastSuggestion | Observation], more: int) -> tuple[Sampler, float]:
    """The sampler with that history, and the seconds that this took."""
    total = more + len(history) // 2
    sampler = SamplerChoice(requested=name, trials=total, seed=1, goal=Goal("accuracy", True)).sampler(searched())
    started_at = CLOCK.now()
    sampler.restore(history)
    return sampler, CLOCK.now() - started_at


def ask_ms(name: str, trials: int) -> float:
    """The median time of one suggestion after so many trials."""
    sampler, _ = restored(name, history_of(trials), 10)
    times = []
    for _ in range(6):
        started_at = CLOCK.now()
        sampler.suggest(1)
        times.append(CLOCK.now() - started_at)
    return median(times[1:]) * 1000


class TimedAgent(SimulatedAgent):
    """Trains each trial for a while, and notes how long its slot is empty between two."""

    def __init__(self, *given: object, seconds: float) -> None:
        super().__init__(*given)  # type: ignore[arg-type]  # as the agent that it extends
        self.waits: list[float] = []
        self._seconds = seconds
        self._ended: float | None = None
        self._training: list[asyncio.Task[None]] = []

    def _train(self, link: Link, member: Member) -> None:
        if self._ended is not None:
            self.waits.append(CLOCK.now() - self._ended)
        self._training.append(asyncio.create_task(self._run(link, member)))

    async def _run(self, link: Link, member: Member) -> None:
        link.post(m.MemberStarted(member, 0))
        await asyncio.sleep(self._seconds)
        self._ended = CLOCK.now()
        link.post(m.MemberEnded(member, Outcome(0.0, metrics={"accuracy": 0.5})))
        link.post(m.MemberStored(member))


async def wait_ms(sampler: Sampler, trials: int, seconds: float, lookahead: int) -> float:
    """The median time that a slot is empty between two trials."""
    transport = MemoryTransport()
    coordinator = Coordinator(Server(transport.listener, CLOCK, {}, ()), CLOCK)
    await coordinator.open()
    agent = TimedAgent(transport.dialer("agent"), 0, CLOCK, seconds=seconds)
    attending = asyncio.create_task(agent.run())
    with tempfile.TemporaryDirectory() as folder:
        work = replace(work_of(folder, trials, 1), sampler=sampler, total=trials, lookahead=lookahead)
        await coordinator.run(work)
    await coordinator.close("measured")
    await attending
    return median(agent.waits) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.3)
    given = parser.parse_args()
    rows = []
    bare = asyncio.run(wait_ms(SpaceSampler(grid(x=list(range(given.trials)))), given.trials, given.seconds, 1))
    rows.append(("a slot waits with a grid", f"{bare:.1f} ms", ""))
    for behind in given.history:
        asked = ask_ms("tpe", behind)
        sampler, _ = restored("tpe", history_of(behind), given.trials)
        late = asyncio.run(wait_ms(sampler, given.trials, given.seconds, 0))
        sampler, _ = restored("tpe", history_of(behind), given.trials)
        waits = asyncio.run(wait_ms(sampler, given.trials, given.seconds, 1))
        rows.append((f"TPE after {behind:,} trials: one suggestion", f"{asked:.0f} ms", ""))
        rows.append((f"TPE after {behind:,} trials: a slot waits, not asked ahead", f"{late:.1f} ms", ""))
        cost = max(0.0, waits - bare)
        limit = at_most(cost, WAIT_MS, " ms")
        rows.append((f"TPE after {behind:,} trials: a slot waits, asked ahead", f"{waits:.1f} ms", ""))
        rows.append((f"TPE after {behind:,} trials: what that adds to a grid's", f"{cost:.1f} ms", limit))
    _, seconds = restored("tpe", history_of(10_000), 1)
    rows.append(("TPE: 10,000 trials restored", f"{seconds:.1f} s", at_most(seconds, RESTORE_S, " s")))
    title = f"{given.trials} trials of {given.seconds} s on one slot, a space of ten parameters"
    show(
        title,
        ("", "measured", "target"),
        rows,
        "Times are medians. The agent shares loop and core with the coordinator.",
    )


if __name__ == "__main__":
    main()
