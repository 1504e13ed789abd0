"""A pool of agents made of data, that obeys the machine's commands: for tests of `state/`."""

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from sparktrain.base.ids import AgentId, Member, RunId, TrialId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import Failure, FailureKind, Loss, Outcome, Report
from sparktrain.state.records import AnyRecord
from tests.support.limits import run_limits

RUN = RunId("run")
LEASE_S = 15.0


@dataclass
class World:
    """The machine, and all its commands so far."""

    machine: Machine = field(default_factory=lambda: Machine(LEASE_S))
    at: float = 0.0
    commands: list[do.Command] = field(default_factory=list)
    running: dict[AgentId, Member] = field(default_factory=dict)
    """Members that an agent has started and that have not ended."""
    reserved: set[Member] = field(default_factory=set)
    """Members that hold a port."""
    fed: list[on.Event] = field(default_factory=list)
    """All messages of agents about members."""
    standings: dict[Member, m.Standing] = field(default_factory=dict)
    """How their processes stand."""
    written: int = 0
    """Checkpoints so far."""
    records: list[AnyRecord] = field(default_factory=list)
    """The journal."""
    cases: int = 4
    """Trials that the sampler still has."""

    def feed(self, event: on.Event) -> list[do.Command]:
        """Fold the event; keep and return the commands."""
        if isinstance(event, on.AgentSent) and isinstance(event.message, m.MemberMessage):
            self.fed.append(event)
        commands: list[do.Command] = []
        for part in self.machine.fold(event):
            first = len(commands)
            for command in part.commands:
                if isinstance(command, do.WriteRecord):
                    assert len(commands) == first, "a record comes after a command of the same event"
                    self.records.append(command.record)
                else:
                    commands.append(command)
        self.commands += commands
        for command in commands:
            if isinstance(command, do.PlaceMember):
                assert command.agent not in self.running, f"{command.agent} is given a second member"
                self.running[command.agent] = command.member
            elif isinstance(command, do.AdoptMember):
                assert command.agent not in self.running, f"{command.agent} holds a second member"
                self.running[command.agent] = command.member
            elif isinstance(command, do.DropAgent):
                self.running.pop(command.agent, None)
            elif isinstance(command, do.Send) and isinstance(command.message, m.RenameMember):
                assert self.running[command.agent] == command.message.member, f"{command.agent} has another process"
                self.running[command.agent] = command.message.successor
                standing = self.standings[command.message.member]
                self.standings[command.message.successor] = replace(standing, waits=False)
        return commands

    def receive(self, agent: AgentId, message: m.StateInput) -> list[do.Command]:
        """The agent sends `message`."""
        return self.feed(on.AgentSent(self.at, agent, message))

    def begin(self, **limits: Any) -> None:
        """A run starts."""
        self.feed(on.RunStarted(self.at, RUN, run_limits(**limits)))

    def join(self, name: str, host: str = "", slot: int = 0, address: str = "127.0.0.1") -> AgentId:
        """An agent joins and gets ready, on a host of its own unless there is a name for it."""
        agent = AgentId(name)
        commands = self.feed(on.AgentJoined(self.at, agent, slot, host or f"host-{name}", address))
        prepared = any(isinstance(command, do.PrepareAgent) for command in commands)
        self.receive(agent, m.Ready(RUN if prepared else None))
        return agent

    def suggest(self) -> None:
        """Answer every open `Suggest`."""
        while self.machine.sweep is not None and self.machine.sweep.suggesting:
            [asked] = [each for each in self.commands if isinstance(each, do.Suggest)][-1:]
            count = min(asked.count, self.cases)
            self.cases -= count
            given = tuple({"x": index} for index in range(count))
            self.feed(on.Suggested(self.at, RUN, given, exhausted=self.cases == 0))

    def reserve(self, agent: AgentId, port: int = 4000) -> list[do.Command]:
        """The agent's member holds a port."""
        self.reserved.add(self.running[agent])
        return self.stand(agent, port=port)

    def stand(self, agent: AgentId, **changes: int) -> list[do.Command]:
        """The process of the agent stands otherwise than before."""
        member = self.running[agent]
        self.standings[member] = replace(self.standings.get(member, m.Standing()), **changes)
        return self.receive(agent, m.MemberStands(member, self.standings[member]))

    def step(self, agent: AgentId, step: int, per_s: float = 1.0, training: bool = True) -> None:
        """The agent's member has finished steps."""
        self.receive(agent, m.MemberStepped(self.running[agent], step, per_s, training))

    def wait_for_rows(self, agent: AgentId, feed: str, waiting: bool) -> None:
        """The agent's member waits for rows of a stream, or has them."""
        self.receive(agent, m.MemberAwaits(self.running[agent], feed, waiting))

    def write(self, agent: AgentId, step: int, score: float | None = None, keep: int = 2) -> list[do.Command]:
        """The agent has published a checkpoint of its member."""
        member = self.running[agent]
        manifest = f"gen-{member.generation}/manifest-{step}"
        checkpoint = Checkpoint(member.generation, step, manifest, f"digest of {manifest}", keep, score)
        return self.receive(agent, m.CheckpointStored(member, checkpoint))

    def declare(self, agent: AgentId, heals: bool = True, *, shrinks: bool = False, moves: bool = True) -> None:
        """The agent's member can continue in a new ring, or no more; with `shrinks` also in a smaller one.

        Without `moves` it is in a loop of the user's own, which does not change its ring before a loss.
        """
        self.stand(agent, heals=heals, moves=heals and moves, shrinks=shrinks)

    def heal(self, agent: AgentId, ring: int, step: int) -> list[do.Command]:
        """The agent's member has joined a ring, and is about to train on."""
        return self.stand(agent, ring=ring, step=step)

    def hold(self, agent: AgentId, step: int, *, paused: bool = False) -> list[do.Command]:
        """The agent holds a snapshot of its member in memory."""
        return self.receive(agent, m.SnapshotHeld(self.running[agent], step, f"{agent}-{step}", paused))

    def enter(self, agent: AgentId, *, trains: bool = False) -> list[do.Command]:
        """The agent's member enters the training function."""
        return self.receive(agent, m.MemberStarted(self.running[agent], 0, trains))

    def prepare(self, agent: AgentId, port: int = 6000, *, bound: bool = True) -> list[do.Command]:
        """The agent's process, which is prepared, has come to its ring; `bound`: its function has read its rank."""
        self.stand(agent, port=port)
        self.receive(agent, m.MemberStarted(self.running[agent], 0))
        waits = self.standings[self.running[agent]].waits  # what it has read does not change while it waits
        return self.stand(agent) if waits else self.stand(agent, waits=True, bound=bound)

    def leave_ring(self, agent: AgentId, ring: int, step: int) -> list[do.Command]:
        """The agent's member leaves its ring for the process that takes its place."""
        return self.stand(agent, leaves=ring, step=step)

    def report(self, agent: AgentId, step: int = 1) -> list[do.Command]:
        """The agent's member reports."""
        return self.receive(agent, m.MemberReported(self.running[agent], (Report(step, {"loss": 1.0}),)))

    def succeed(self, agent: AgentId) -> list[do.Command]:
        """The agent's member returns."""
        return self.end(agent, Outcome(1.0, metrics={"accuracy": 0.5}))

    def fail(self, agent: AgentId, kind: FailureKind = FailureKind.EXCEPTION) -> list[do.Command]:
        """The agent's member fails."""
        return self.end(agent, Outcome(1.0, failure=Failure(kind, f"failed by {kind}")))

    def end(self, agent: AgentId, outcome: Outcome) -> list[do.Command]:
        """The agent's member ends."""
        return self.receive(agent, m.MemberEnded(self.running.pop(agent), outcome))

    def lose(self, agent: AgentId) -> list[do.Command]:
        """The agent's stream ends."""
        self.running.pop(agent, None)
        return self.feed(on.AgentGone(self.at, agent, "its executor died"))

    def explain(self, agent: AgentId, loss: Loss = Loss.PREEMPTED) -> list[do.Command]:
        """The cluster reports why the agent was lost."""
        return self.feed(on.LossExplained(self.at, agent, loss, f"reason: {loss}"))

    def stop(self, grace_s: float = 0.0) -> list[do.Command]:
        """The user stops the run."""
        return self.feed(on.StopAsked(self.at, RUN, "interrupted", grace_s))

    def stop_trial(self, trial: int, reason: str = "stopped by the user") -> list[do.Command]:
        return self.feed(on.TrialStopAsked(self.at, RUN, TrialId(trial), reason))

    def drain(
        self, host: str = "", agent: int | None = None, request: str = "first", *, cancels: bool = False
    ) -> list[do.Command]:
        """The user drains a host or an agent, or no longer."""
        return self.feed(on.DrainAsked(self.at, RUN, request, host, agent, cancels=cancels))

    def announce(self, agent: AgentId, notice: str = "SIGTERM") -> list[do.Command]:
        """The agent has notice that it leaves."""
        return self.receive(agent, m.AgentLeaves(notice))

    def tick(self, seconds: float, beating: bool = True) -> list[do.Command]:
        """Time passes, in which all agents send heartbeats, or none does."""
        commands: list[do.Command] = []
        while seconds > 0:
            step = min(seconds, 5.0)
            seconds -= step
            self.at += step
            if beating:
                for agent in self.machine.agents.all():
                    commands += self.receive(agent.id, m.Heartbeat())
            commands += self.feed(on.Ticked(self.at))
        return commands

    def all(self, kind: type[do.Command]) -> list[Any]:
        """Every command of `kind` so far."""
        return [command for command in self.commands if isinstance(command, kind)]

    def sent(self, kind: type[m.StateOutput]) -> list[Any]:
        """Every message of `kind` that was sent so far."""
        return [each.message for each in self.all(do.Send) if isinstance(each.message, kind)]

    def seatings(self, stage: str) -> list[m.Seating]:
        """Every seating of this stage that was sent so far."""
        return seatings_in(self.commands, stage)

    def status(self, trial: int) -> str:
        """Of a trial of the newest run."""
        assert self.machine.last is not None
        return str(self.machine.last.trials[TrialId(trial)].status)


def stage_of(message: m.StateOutput) -> str:
    """Where the ring of a seating is; empty for other messages."""
    if not isinstance(message, m.Seating):
        return ""
    if message.moving is not None:
        return "offered"
    return "broken" if not message.places else "joined" if message.joined else "formed"


def seatings_in(commands: list[do.Command], stage: str) -> list[m.Seating]:
    """The seatings of this stage."""
    sent = [command.message for command in commands if isinstance(command, do.Send)]
    return [message for message in sent if isinstance(message, m.Seating) and stage_of(message) == stage]


def kinds(commands: list[do.Command]) -> list[type]:
    """The type of each command; of one that sends a message, the message's."""
    return [type(each.message if isinstance(each, do.Send) else each) for each in commands]
