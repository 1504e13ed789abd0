"""A pool with several runs made of data, that obeys the machine's commands."""

from dataclasses import dataclass, field
from typing import Any

from sparktrain.base.ids import AgentId, Member, RunId, TrialId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.state.records import AnyRecord
from sparktrain.state.sweep import Sweep
from tests.support.limits import run_limits
from tests.unit.state.world import LEASE_S


class WrongCommandError(AssertionError):
    """The machine gave an agent to two, or a member to an agent that cannot start it."""


@dataclass
class SharedWorld:
    """The machine, its agents, and what each run has done."""

    machine: Machine = field(default_factory=lambda: Machine(LEASE_S))
    at: float = 0.0
    codes: dict[AgentId, set[RunId]] = field(default_factory=dict)
    """The runs that an agent has the code of."""
    running: dict[AgentId, Member] = field(default_factory=dict)
    asked: set[Member] = field(default_factory=set)
    """Chiefs that were asked to pause after a checkpoint."""
    stopping: set[AgentId] = field(default_factory=set)
    """Agents that must end their member."""
    records: dict[RunId, list[AnyRecord]] = field(default_factory=dict)
    ended: dict[RunId, do.EndRun] = field(default_factory=dict)
    cases: dict[RunId, int] = field(default_factory=dict)
    """Trials that the sampler of a run still has."""
    requests: list[do.Suggest] = field(default_factory=list)
    sweeps: dict[RunId, Sweep] = field(default_factory=dict)
    steps: dict[tuple[RunId, TrialId], int] = field(default_factory=dict)
    """The newest step of each trial."""
    placed: list[do.PlaceMember] = field(default_factory=list)
    prepared: list[do.PrepareAgent] = field(default_factory=list)

    def feed(self, event: on.Event) -> None:
        """Fold the event, and obey."""
        for part in self.machine.fold(event):
            for command in part.commands:
                self._obey(part.run, command)

    def _obey(self, run: RunId | None, command: do.Command) -> None:
        match command:
            case do.WriteRecord(record=record):
                assert run is not None
                self.records.setdefault(run, []).append(record)
            case do.PrepareAgent(agent=agent, run=name):
                if agent in self.running or run != name:
                    raise WrongCommandError(f"{agent} is prepared for {name}, with {self.running.get(agent)}")
                self.prepared.append(command)
            case do.PlaceMember(agent=agent, member=member):
                if agent in self.running or member.run not in self.codes[agent] or run != member.run:
                    raise WrongCommandError(f"{agent} gets {member}, with {self.running.get(agent)}")
                self.running[agent] = member
                self.placed.append(command)
            case do.DropAgent(agent=agent):
                self.running.pop(agent, None)
            case do.Suggest():
                self.requests.append(command)
            case do.EndRun(run=name):
                self.ended[name] = command
            case do.Send(message=m.AskSnapshot(member=member)):
                self.asked.add(member)
            case do.Send(agent=agent, message=m.StopMember(member=member)):
                assert self.running.get(agent) == member
                self.stopping.add(agent)

    def begin(self, name: str, cases: int = 1000, **limits: Any) -> RunId:
        """A run starts, with a sampler that has so many cases."""
        run = RunId(name)
        self.cases[run] = cases
        self.feed(on.RunStarted(self.at, run, run_limits(name=name, **{"lookahead": 1, "agents": 10_000, **limits})))
        sweep = self.machine.sweep_of(run)
        assert sweep is not None
        self.sweeps[run] = sweep
        self.settle()
        return run

    def join(self, *names: str) -> list[AgentId]:
        """Agents join, each on a host of its own."""
        agents = [AgentId(name) for name in names]
        for slot, agent in enumerate(agents):
            self.codes[agent] = set()
            self.feed(on.AgentJoined(self.at, agent, slot, f"host-{agent}"))
            self.receive(agent, m.Ready())
        self.settle()
        return agents

    def settle(self) -> None:
        """Answer all requests to samplers, and have all agents load the code that they got."""
        while self.requests or self.prepared:
            for prepare in self._take(self.prepared):
                if prepare.agent in self.codes and self.machine.agents.get(prepare.agent) is not None:
                    self.codes[prepare.agent].add(prepare.run)
                    self.receive(prepare.agent, m.Ready(prepare.run))
            for request in self._take(self.requests):
                count = min(request.count, self.cases[request.run])
                self.cases[request.run] -= count
                cases = tuple({"x": index} for index in range(count))
                self.feed(on.Suggested(self.at, request.run, cases, exhausted=not self.cases[request.run]))

    @staticmethod
    def _take(commands: list[Any]) -> list[Any]:
        taken = list(commands)
        commands.clear()
        return taken

    def receive(self, agent: AgentId, message: m.StateInput) -> None:
        """The agent sends `message`."""
        self.feed(on.AgentSent(self.at, agent, message))

    def start(self, agent: AgentId) -> None:
        """The agent's member enters the training function, where it is alone; one of a gang holds a port first."""
        member = self.running[agent]
        if self.sweeps[member.run].limits.size > 1:
            self.receive(agent, m.MemberStands(member, m.Standing(port=4000)))
        self.receive(agent, m.MemberStarted(member, 0))

    def start_all(self) -> None:
        """All members enter the training function."""
        for agent, member in list(self.running.items()):
            gang = self.sweeps[member.run].gangs.get(member.trial)
            if gang is not None and gang.size > 1 and member.rank not in gang.attendance.entered:
                self.receive(agent, m.MemberStands(member, m.Standing(port=4000)))
        for agent, member in list(self.running.items()):
            gang = self.sweeps[member.run].gangs.get(member.trial)
            if gang is not None and member.rank not in gang.attendance.entered:
                self.receive(agent, m.MemberStarted(member, 0))

    def step(self, agent: AgentId) -> None:
        """The agent's member makes a step."""
        member = self.running[agent]
        step = self.steps[member.run, member.trial] = self.steps.get((member.run, member.trial), 0) + 1
        self.receive(agent, m.MemberStepped(member, step, 1.0))

    def save(self, agent: AgentId) -> None:
        """The agent's member has a checkpoint of its newest step; a member that must end for that ends."""
        member = self.running[agent]
        step = self.steps.get((member.run, member.trial), 0)
        manifest = f"{member.run}-{member.trial}-{member.generation}-{step}"
        self.receive(agent, m.CheckpointStored(member, Checkpoint(member.generation, step, manifest, manifest)))

    def end_stopped(self) -> None:
        """The members that must end have ended."""
        for agent in list(self.stopping):
            self.stopping.discard(agent)
            if agent in self.running:
                self.fail(agent, FailureKind.STOPPED)

    def succeed(self, agent: AgentId) -> None:
        """The agent's member returns."""
        self.end(agent, Outcome(1.0, metrics={"accuracy": 0.5}))

    def fail(self, agent: AgentId, kind: FailureKind) -> None:
        """The agent's member fails."""
        self.end(agent, Outcome(1.0, failure=Failure(kind, f"failed by {kind}")))

    def end(self, agent: AgentId, outcome: Outcome) -> None:
        """The agent's member ends."""
        self.receive(agent, m.MemberEnded(self.running.pop(agent), outcome))
        self.settle()

    def lose(self, agent: AgentId) -> None:
        """The agent's stream ends."""
        self.running.pop(agent, None)
        self.codes.pop(agent, None)
        self.feed(on.AgentGone(self.at, agent, "its executor died"))
        self.settle()

    def tick(self, seconds: float) -> None:
        """Time passes, in which all agents send heartbeats."""
        until = self.at + seconds
        while self.at < until:
            self.at = min(until, self.at + 1.0)
            for agent in self.machine.agents.all():
                self.receive(agent.id, m.Heartbeat())
            self.feed(on.Ticked(self.at))
            self.settle()

    def stop(self, run: RunId) -> None:
        """The user stops a run."""
        self.feed(on.StopAsked(self.at, run, "interrupted", 0.0))
        self.settle()

    def of(self, run: RunId) -> list[AgentId]:
        """The agents with a member of the run."""
        return [agent for agent, member in self.running.items() if member.run == run]
