"""Many calls start together on a pool, and its agents load their code."""

from collections import Counter, deque

from sparktrain.base.ids import AgentId, RunId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.machine import Machine
from tests.support.call_count import counted
from tests.support.limits import run_limits
from tests.unit.state.world import LEASE_S

CALLS = 20
FEW, MANY = 100, 400
GROWTH = 1.5
"""Of the calls of functions for each agent, from `FEW` to `MANY` of them."""


class SharedLaunch:
    """A pool. Its agents answer in the order in which they were asked."""

    def __init__(self, agents: int) -> None:
        self.machine = Machine(LEASE_S)
        self.answers = deque[on.Event]()
        self.prepared: list[do.PrepareAgent] = []
        self.placed = Counter[RunId]()
        self._agents = agents
        for number in range(agents):
            agent = AgentId(f"a{number}")
            self.feed(on.AgentJoined(0.0, agent, number, f"host-{number}"))
            self.feed(on.AgentSent(0.0, agent, m.Ready()))

    def feed(self, event: on.Event) -> None:
        """Fold the event; agents and samplers answer later."""
        for command in self.machine.handle(event):
            match command:
                case do.PrepareAgent(agent=agent, run=run):
                    self.prepared.append(command)
                    self.answers.append(on.AgentSent(0.0, agent, m.Ready(run)))
                case do.PlaceMember(member=member):
                    self.placed[member.run] += 1
                case do.Suggest(run=run, count=count):
                    cases = tuple({"x": number} for number in range(count))
                    self.answers.append(on.Suggested(0.0, run, cases, exhausted=False))

    def begin(self, number: int, priority: int = 0) -> RunId:
        """A call starts, which could use all agents."""
        run = RunId(f"call-{number}")
        limits = run_limits(agents=self._agents)
        allotment = on.Allotment(agents=self._agents, priority=priority)
        limits = on.RunLimits(spec=limits.spec, roles=limits.roles, allotment=allotment)
        self.feed(on.RunStarted(0.0, run, limits))
        return run

    def answer(self) -> None:
        """All agents and samplers answer, until nothing is left to answer."""
        while self.answers:
            self.feed(self.answers.popleft())


def test_agents_that_load_code_are_shared_once_they_have_it() -> None:
    launch = SharedLaunch(FEW)
    runs = [launch.begin(number) for number in range(CALLS)]
    assert [command.run for command in launch.prepared] == [runs[0]] * FEW, "an agent was taken while it loaded"
    launch.answer()
    assert launch.placed == Counter(dict.fromkeys(runs, FEW // CALLS))
    assert len(launch.prepared) == FEW + FEW - FEW // CALLS, "an agent has loaded more than two calls' code"


def test_a_call_of_higher_priority_takes_agents_that_load_code() -> None:
    launch = SharedLaunch(FEW)
    launch.begin(0)
    urgent = launch.begin(1, priority=1)
    assert [command.run for command in launch.prepared[FEW:]] == [urgent] * FEW
    launch.answer()
    assert launch.placed == Counter({urgent: FEW})


def start_together(agents: int) -> int:
    """The calls of functions while twenty calls start and their first trials are placed."""
    launch = SharedLaunch(agents)

    def work() -> None:
        for number in range(CALLS):
            launch.begin(number)
        launch.answer()

    calls = counted(work)
    assert sum(launch.placed.values()) == agents
    return calls


def test_the_launch_of_many_calls_costs_the_same_for_each_agent() -> None:
    few, many = start_together(FEW) / FEW, start_together(MANY) / MANY
    assert many < GROWTH * few, f"{many:.0f} calls for each of {MANY} agents, {few:.0f} for each of {FEW}"
