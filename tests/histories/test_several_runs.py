"""Several runs on one pool, at random: no agent is of two runs, gangs form whole, urgent runs cost no step."""

import random
from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from sparktrain.base.ids import AgentId, RunId
from sparktrain.state import machine
from sparktrain.state.agents import Agents
from sparktrain.state.allocation import shares
from sparktrain.state.allocation.allocator import Allocator, Contender, Reservation
from sparktrain.state.allocation.claims import Claim
from sparktrain.state.gangs.gang import GangStatus
from tests.unit.state.shared_world import SharedWorld

HISTORIES = 60
EVENTS = 60
WHAT = ("start", "start", "step", "step", "save", "end", "end", "end", "succeed", "tick", "lose", "join", "run", "stop")
PATIENCE_S = 400.0
"""A gang that fits has started by then, where the other trials last a second."""


class WrongHistoryError(AssertionError):
    """A run got what is not its own, or not what it should."""


class History:
    """Some runs of different sizes, weights and priorities on a small pool."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = SharedWorld()
        self.names = 0
        self.runs = 0
        self.world.join(*(self.name() for _ in range(self.random.randint(2, 6))))
        for _ in range(self.random.randint(2, 4)):
            self.begin()

    def name(self) -> str:
        self.names += 1
        return f"a{self.names}"

    def begin(self) -> None:
        """Another run starts."""
        self.runs += 1
        cases = self.random.choice([2, 5, 1000])
        self.world.begin(
            f"run-{self.runs}",
            cases=cases,
            total=self.random.choice([cases, None]),
            size=self.random.choice([1, 1, 1, 2, 3]),
            weight=self.random.choice([1.0, 2.0, 5.0]),
            priority=self.random.choice([0, 0, 0, 1, 2]),
            most=self.random.choice([None, None, 3]),
            max_retries=100,
            recovers=True,
        )

    def play(self) -> int:
        """Returns how many trials were preempted."""
        for _ in range(EVENTS):
            self.act(self.random.choice(WHAT))
            self.world.settle()
            self.world.at += self.random.choice([0.0, 0.1, 0.5])
            self.check()
        self.finish()
        return self.check_preempted()

    def act(self, what: str) -> None:
        world = self.world
        busy = list(world.running)
        if what == "start":
            world.start_all()
        elif what == "step" and (chief := self.chief()):
            world.step(chief)
        elif what == "save" and (chief := self.chief()):
            world.save(chief)
        elif what == "end":
            world.end_stopped()
        elif what == "succeed" and (chief := self.chief()):
            self.succeed(chief)
        elif what == "tick":
            world.tick(self.random.choice([0.2, 1.0, 40.0]))
        elif what == "lose" and len(world.codes) > 1 and self.random.random() < 0.4:
            world.lose(self.random.choice([*world.codes]))
            for agent in busy:
                if agent in world.stopping:
                    world.end_stopped()
        elif what == "join" and len(world.codes) < 8:
            world.join(self.name())
        elif what == "run" and len(world.machine.runs) < 5:
            self.begin()
        elif what == "stop" and self.random.random() < 0.2 and world.machine.runs:
            world.stop(self.random.choice(world.machine.runs))

    def chief(self) -> AgentId | None:
        """An agent with the chief of a gang that trains."""
        chiefs = [
            agent
            for agent, member in self.world.running.items()
            if member.rank == 0
            and agent not in self.world.stopping
            and (gang := self.world.sweeps[member.run].gangs.get(member.trial)) is not None
            and gang.status is GangStatus.RUNNING
        ]
        return self.random.choice(chiefs) if chiefs else None

    def succeed(self, chief: AgentId) -> None:
        """The whole gang returns."""
        member = self.world.running[chief]
        gang = self.world.sweeps[member.run].gangs[member.trial]
        for agent, _ in list(gang.live()):
            if agent in self.world.running:
                self.world.stopping.discard(agent)
                self.world.succeed(agent)

    def check(self) -> None:
        """What must hold after each event."""
        world = self.world
        for agent in world.machine.agents.all():
            if agent.member is not None and agent.member.run != agent.run:
                raise WrongHistoryError(f"{agent.id} is of run {agent.run}, and has {agent.member}")
        for run in world.machine.runs:
            sweep = world.sweeps[run]
            for gang in sweep.gangs.values():
                live = {agent for agent, _ in gang.live()}
                if live - set(world.running):
                    raise WrongHistoryError(f"trial {gang.trial} of {run} has agents without its members")
            most = sweep.limits.allotment.most
            if most is not None and len(world.of(run)) > most:
                raise WrongHistoryError(f"{run} has {len(world.of(run))} agents, and may have {most}")
        self.check_idle()

    def check_idle(self) -> None:
        """No agent is idle that a run could use at once, unless it waits for a gang that can form."""
        world = self.world
        idle = [agent for agent in world.machine.agents.all() if agent.member is None]
        for run in world.machine.runs:
            sweep = world.sweeps[run]
            most = sweep.limits.allotment.most
            may_start = most is None or len(world.of(run)) + sweep.limits.size <= most
            if sweep.limits.size > 1 or not sweep.queue or sweep.stop is not None or not may_start:
                continue
            holders = {agent.run for agent in idle}
            # What a gang keeps is there for it as long as it has less than it needs.
            waiting = {
                other
                for other in world.machine.runs
                if world.sweeps[other].limits.size > sum(agent.run == other for agent in idle)
                and world.sweeps[other].limits.size <= len(world.machine.agents)
            }
            if holders - waiting:
                raise WrongHistoryError(f"{run} waits, and {[(agent.id, agent.run) for agent in idle]} are idle")

    def finish(self) -> None:
        """Every run comes to its end: each trial lasts a second, and agents are there for the largest gang."""
        world = self.world
        while len(world.codes) < 4:
            world.join(self.name())
        started_at = world.at
        for run in world.machine.runs:
            world.cases[run] = min(world.cases[run], 4)
        while world.machine.runs:
            for agent in list(world.running):
                world.start_all()
                world.end_stopped()
                member = world.running.get(agent)
                if member is not None and member.rank == 0 and agent not in world.stopping:
                    gang = world.sweeps[member.run].gangs.get(member.trial)
                    if gang is not None and gang.status is GangStatus.RUNNING:
                        self.succeed(agent)
            world.tick(1.0)
            self.check()
            if world.at > started_at + PATIENCE_S:
                left = {run: len(world.sweeps[run].queue) for run in world.machine.runs}
                raise WrongHistoryError(f"these runs do not come to their end: {left}")

    def check_preempted(self) -> int:
        """Trials that were preempted have continued where they were, and used no retry."""
        preempted = 0
        for run, sweep in self.world.sweeps.items():
            for trial in sweep.trials.values():
                for restart in trial.restarts:
                    if not restart.cause.startswith("preempted by run "):
                        continue
                    preempted += 1
                    by = RunId(restart.cause.removeprefix("preempted by run "))
                    if self.world.sweeps[by].limits.allotment.priority <= sweep.limits.allotment.priority:
                        raise WrongHistoryError(f"trial {trial.id} of {run} was {restart.cause}")
                    if restart.steps_lost or not restart.paused:
                        raise WrongHistoryError(f"trial {trial.id} of {run} repeats steps: {restart}")
        return preempted


def test_runs_share_a_pool_whatever_happens() -> None:
    preempted = sum(History(seed).play() for seed in range(HISTORIES))
    assert preempted > HISTORIES / 4, "the histories are about this, too"


def weights_hold() -> None:
    """Long histories in which all trials last about a second: each run gets its share in each minute."""
    for seed in range(2):
        world = SharedWorld()
        agents = world.join(*(f"a{number}" for number in range(8)))
        draw = random.Random(seed)
        runs = {world.begin(f"run-{weight}", weight=float(weight)): weight for weight in (1, 2, 4)}
        for minute in range(2):
            used = dict.fromkeys(runs, 0.0)
            for _ in range(480):
                world.at += 0.125
                for member in world.running.values():
                    used[member.run] += 0.125
                agent = draw.choice(agents)
                world.start_all()
                if agent in world.running:
                    world.succeed(agent)
            for run, weight in runs.items():
                share = used[run] / sum(used.values()) * 7 / weight
                if minute and not 0.9 < share < 1.1:
                    raise WrongHistoryError(f"{run} has {share:.2f} of its share in minute {minute}")


def test_weights_hold_in_each_minute() -> None:
    weights_hold()


def urgent_runs_start_soon() -> None:
    """On a full pool with trials that save, an urgent run has its agents after one checkpoint of as many trials."""
    for size in (1, 2):
        world = SharedWorld()
        agents = world.join(*"abcd")
        world.begin("low", size=1)
        world.start_all()
        for agent in agents:
            world.step(agent)
            world.save(agent)
        urgent = world.begin("urgent", cases=1, total=1, size=size, priority=1)
        for agent in agents:
            world.step(agent)
            world.save(agent)
        world.end_stopped()
        if len(world.of(urgent)) != size:
            raise WrongHistoryError(f"the urgent run has {len(world.of(urgent))} of {size} agents")
        preempted = sum(bool(trial.restarts) for trial in world.sweeps[RunId("low")].trials.values())
        if preempted != size:
            raise WrongHistoryError(f"{preempted} trials have paused for {size}")


def urgent_runs_come_first() -> None:
    """What becomes free goes to the run of higher priority, whatever another one is owed."""
    world = SharedWorld()
    agents = world.join("a", "b")
    world.begin("low", weight=1000.0)
    world.start_all()
    urgent = world.begin("urgent", cases=4, total=4, priority=1)
    for agent in (*agents, *agents):
        world.at += 5.0
        world.start_all()
        world.succeed(agent)
        if urgent not in world.ended and world.running[agent].run != urgent:
            raise WrongHistoryError(f"{agent} went to {world.running[agent].run}")


def test_urgent_runs_start_at_the_next_checkpoint() -> None:
    urgent_runs_start_soon()
    urgent_runs_come_first()


Mistake = Callable[[pytest.MonkeyPatch], None]


def two_owners(patch: pytest.MonkeyPatch) -> None:
    """An agent with a member is given away."""
    patch.setattr(Agents, "free", lambda self, run: [agent for agent in self.all() if agent.run == run])


def no_reservation(patch: pytest.MonkeyPatch) -> None:
    """A large gang gets no agent before it has all of them."""
    patch.setattr(Reservation, "may_hold", lambda self, run, at: False)


def reservation_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Agents are kept for a gang that is larger than the pool."""
    patch.setattr(
        Allocator, "_reserve", lambda self, contender, arrived, at: setattr(contender, "reserves", True) or True
    )


def partial_gangs(patch: pytest.MonkeyPatch) -> None:
    """A gang counts as one that can use any number of agents."""
    patch.setattr(Contender, "missing", property(lambda self: 1))


def equal_weights(patch: pytest.MonkeyPatch) -> None:
    """Weights do not count."""
    intact = Allocator.open
    patch.setattr(
        Allocator, "open", lambda self, run, allotment, at: intact(self, run, replace(allotment, weight=1.0), at)
    )


def uncounted_use(patch: pytest.MonkeyPatch) -> None:
    """The use is not counted."""
    patch.setattr(shares.RunShare, "count", lambda self, at: None)


def blind_priority(patch: pytest.MonkeyPatch) -> None:
    """A run of higher priority waits for its turn."""
    order = Contender.order
    patch.setattr(Contender, "order", lambda self: (0, *order(self)[1:]))


def all_pause(patch: pytest.MonkeyPatch) -> None:
    """All trials pause for an urgent one."""
    patch.setattr(machine, "chosen", lambda candidates, agents: candidates)


def none_pauses(patch: pytest.MonkeyPatch) -> None:
    """No trial pauses for an urgent one."""
    patch.setattr(machine, "chosen", lambda candidates, agents: [])


def ended_keeps(patch: pytest.MonkeyPatch) -> None:
    """A run that is over keeps its agents."""
    patch.setattr(Allocator, "orphans", lambda self: [])
    patch.setattr(Allocator, "_has_orphans", lambda self: False)


def no_limit(patch: pytest.MonkeyPatch) -> None:
    """`max_concurrent_trials` does not count."""
    patch.setattr(
        "sparktrain.state.run_machine.claim_of",
        lambda sweep, busy, lacking: Claim(sweep.limits.size, len(sweep.queue) * sweep.limits.size, 100, lacking),
    )
    patch.setattr("sparktrain.state.run_machine.room", lambda sweep, agents: 1000)


def greedy_surplus(patch: pytest.MonkeyPatch) -> None:
    """A run keeps agents that it has no use for."""
    patch.setattr(Contender, "surplus", property(lambda self: 0))


MISTAKES: list[Mistake] = [
    two_owners, no_reservation, reservation_for_ever, partial_gangs, equal_weights, uncounted_use, blind_priority,
    all_pause, none_pauses, ended_keeps, no_limit, greedy_surplus,
]  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    # Some mistakes break the machine itself before a check sees them.
    with pytest.raises((AssertionError, KeyError, ValueError)):
        list(checks())


def checks() -> Iterator[None]:
    """All of them, the quick ones first."""
    yield urgent_runs_start_soon()
    yield urgent_runs_come_first()
    yield weights_hold()
    for seed in range(HISTORIES):
        History(seed).play()
        yield None
