"""The words of the table in `test_seat_decisions`: what happens to a gang, and what the coordinator decides then.

Agents are `a0`, `a1` and so on, each on a host of its own; at first that with number n has the member of rank n.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from sparktrain.base.ids import AgentId, RunId, TrialId
from sparktrain.config.gang_spec import Role
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state import records as fact
from sparktrain.state.gangs.gang import Gang
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import PLANNED, Failure, FailureKind
from sparktrain.state.topology import MemberAddress
from tests.support.limits import run_limits
from tests.unit.state.world import LEASE_S, RUN, World, stage_of

STEP = 20
"""The step that all members of a gang have reported at first."""
SERVERS = (Role.CHIEF, Role.WORKER, Role.WORKER, Role.PS, Role.EVALUATOR)


class Situation:
    """One gang that trains, and what happens to it; `decision` is what has followed from the last of that."""

    def __init__(
        self, size: int = 3, hosts: str = "", able: str = "heals moves shrinks", joined: bool = True, **limits: Any
    ) -> None:
        """`hosts`: that of each agent, in one letter, where agents share hosts. `able`: what all members declare."""
        self.world = World(cases=1)
        self.able = dict.fromkeys(able.split(), True)
        self._named_hosts = bool(hosts)
        roles = limits.get("roles", (Role.CHIEF, *[Role.WORKER] * (size - 1)))
        limits = {"recovers": True, "heals": Role.PS not in roles, "agents": 100, "hang_timeout_s": 1000.0} | limits
        self.world.begin(size=size, **limits)
        for number in range(len(hosts or roles)):
            self.join(f"{hosts[number] if hosts else 'a'}{number}")
        self.world.suggest()
        self._begin_at = 0
        self._recorded = 0
        for rank, agent in sorted((member.rank, agent) for agent, member in self.world.running.items()):
            if joined or rank:
                self.world.reserve(agent, 4000 + rank)
        for agent, member in sorted(self.world.running.items() if joined else (), key=lambda entry: entry[1].rank):
            self.world.enter(agent, trains=Role.PS in roles and roles[member.rank] is Role.WORKER)
        self.declare(self.world.running)
        if joined:
            self.step(STEP)

    # ---- what happens

    def do(self, deeds: str) -> str:
        """Deeds, separated by commas; returns what follows from the last one."""
        for deed in filter(None, map(str.strip, deeds.split(","))):
            self._begin_at = len(self.world.commands)
            self._recorded = len(self.world.records)
            self._do(*deed.split())
        return self.decision()

    def _do(self, what: str, *names: str) -> None:
        world = self.world
        if what in ("join", "start", "wait", "drain", "keep", "takeover", "offer", "preempt", "stop"):
            getattr(self, what)(*names)
        elif what in ("hold", "pause"):
            step = world.written = world.written + STEP + 1
            for agent in self.agents(names):
                world.step(agent, step)
                world.hold(agent, step, paused=what == "pause")
        elif what == "step":
            self.step(int(names[0]), names[1:])
        elif what in ("arrive", "meet"):  # the members report that they have joined the newest ring
            for agent in self.agents(names):
                world.heal(agent, self.gang().absences.newest_ring, self.gang().progress.last_step or 0)
            if what == "meet":
                self.declare(self.agents(names))
        elif what == "declare":
            self.able = dict.fromkeys(names, True)
            self.declare(self.agents(()))
        else:
            for agent in self.agents(names):
                self._do_to(agent, what)

    def _do_to(self, agent: AgentId, what: str) -> None:
        world = self.world
        match what:
            case "started":
                world.receive(agent, m.Ready(RUN))
            case "lose":
                world.lose(agent)
            case "notice":
                world.announce(agent)
            case "unable":
                world.declare(agent, heals=False)
            case "able":
                self.declare([agent])
            case "port":
                world.reserve(agent, 5000 + world.running[agent].rank)
            case "again":
                world.reserve(agent, 4000 + world.running[agent].rank)
            case "enter":
                place = self.gang().places[world.running[agent].rank]
                world.enter(agent, trains=Role.PS in self.sweep().limits.roles and place.role is Role.WORKER)
            case "return":
                world.succeed(agent)
            case "save":
                world.written += STEP
                world.write(agent, world.written)
            case "ready" | "bound":
                world.prepare(agent, bound=what == "bound")
            case "leave":
                world.leave_ring(agent, self.gang().absences.newest_ring, self.gang().progress.last_step or 0)
            case "rest":
                world.step(agent, STEP, training=False)
            case _:
                world.fail(agent, FailureKind(what))

    def agents(self, names: Iterable[str]) -> list[AgentId]:
        """By name or by rank; those of all members where none is named."""
        agents = dict(enumerate(self.gang().agents)) if not names or any(map(str.isdigit, names)) else {}
        chosen = [agents[int(name)] if name.isdigit() else AgentId(name) for name in names]
        return chosen or [agent for agent, _ in self.gang().live()]

    def join(self, name: str) -> None:
        """An agent joins: on a host of its own, or on that of its letter."""
        self.world.join(name, name[0] if self._named_hosts else name, int(name[1:]))

    def start(self, name: str) -> None:
        """An agent joins, on a host of its own, and starts."""
        self.world.feed(on.AgentJoined(self.world.at, AgentId(name), int(name[1:]), name))

    def declare(self, agents: Iterable[AgentId]) -> None:
        """The members can change their ring, as far as all members can."""
        for agent in agents:
            self.world.stand(agent, **{"heals": False, "moves": False, "shrinks": False, **self.able})

    def step(self, step: int, names: tuple[str, ...] = ()) -> None:
        places = self.gang().places
        for agent in self.agents(names):
            if places[self.world.running[agent].rank].role in (Role.CHIEF, Role.WORKER):
                self.world.step(agent, step, 10.0)

    def wait(self, seconds: str) -> None:
        self.world.tick(float(seconds))

    def drain(self, name: str) -> None:
        """A user drains the host of a member or agent."""
        self.world.drain(self.host_of(name), request=f"{self._begin_at} {name}")

    def keep(self, name: str) -> None:
        """The user cancels that."""
        self.world.drain(self.host_of(name), request=f"{self._begin_at} back {name}", cancels=True)

    def host_of(self, name: str) -> str:
        [agent] = self.agents([name])
        state = self.world.machine.agents.get(agent)
        return state.host if state is not None else str(agent)

    def stop(self, what: str = "run") -> None:
        """The user stops the run, or the trial."""
        self.world.stop(60.0) if what == "run" else self.world.stop_trial(0)

    def preempt(self) -> None:
        """A run of higher priority starts."""
        limits = run_limits(name="urgent", priority=1, total=1, agents=100, lookahead=1)
        self.world.feed(on.RunStarted(self.world.at, RunId("urgent"), limits))
        self.world.feed(on.Suggested(self.world.at, RunId("urgent"), ({},), exhausted=True))
        self.world.tick(1.0)

    def takeover(self) -> None:
        """The driver is lost, and another one starts."""
        before, sweep = self.world, self.sweep()
        starts = fact.DriverStarted(plan="p", at=before.at, adopts=True)
        self.world = World(Machine(LEASE_S), at=before.at, cases=0)
        self._held = dict(before.running)
        self._standings = dict(before.standings)
        self.world.feed(on.RunStarted(before.at, RUN, sweep.limits, tuple(before.records), starts))
        self._begin_at = self._recorded = 0

    def offer(self, *names: str) -> None:
        """Agents with members of the lost driver join."""
        for name in names:
            agent = AgentId(f"a{name}")
            member = self._held[agent]
            role = self.sweep().limits.roles[member.rank]
            place = MemberAddress(str(agent), "", 4000 + member.rank, role)
            standing = replace(self._standings[member], waits=False)
            held = m.HeldMember(member=member, entered=True, place=place, step=STEP, standing=standing, seconds=3.0)
            self.world.feed(on.AgentJoined(self.world.at, agent, 0, str(agent), held=held))
            self.world.receive(agent, m.Ready(RUN))

    def sweep(self):
        sweep = self.world.machine.sweep_of(RUN) or self.world.machine.last
        assert sweep is not None
        return sweep

    def gang(self) -> Gang:
        return self.sweep().gangs[TrialId(0)]

    # ---- what follows

    def decision(self) -> str:
        """What the last deed has led to, in the order in which it did: records, and what agents are to do."""
        lines = [line for record in self.world.records[self._recorded :] if (line := _noted(record))]
        groups: dict[str, list[str]] = {}
        for command in self.world.commands[self._begin_at :]:
            line, subject = _ordered(command)
            if line:
                groups.setdefault(line, []).append(subject)
        gang = self.sweep().gangs.get(TrialId(0))
        cause = None if gang is None else gang.fault.first
        for line, subjects in groups.items():
            ending = f"{' '.join(subjects)} {line}"
            lines.append(ending if line != "end" or cause is None else f"{ending}, for {_named(cause)}")
        return "; ".join(lines)


def _named(cause: Failure) -> str:
    hint = cause.summary.partition("; it could not restart alone: ")[2]
    return f"{cause.kind} of {cause.rank}" + (f": {hint}" if hint else "")


def _noted(record: fact.AnyRecord) -> str:
    match record:
        case fact.MemberRestarted(restart=restart):
            steps = "" if restart.steps_lost is None else f", {restart.steps_lost} steps lost"
            return f"{restart.rank} {restart.how}{steps}"
        case fact.GangRestarted(restart=restart):
            why = restart.cause if restart.how in PLANNED else str(restart.kind)
            return f"all {restart.how} from {restart.resumed_from_step} for {restart.rank}: {why}"
        case fact.DrainCompleted():
            return "drain complete"
        case fact.GangAdopted():
            return "adopted"
    return ""


def _ordered(command: do.Command) -> tuple[str, str]:
    """What an agent is to do, and for which member; of a process that is prepared, the agent."""
    match command:
        case do.PlaceMember(agent=agent, member=member, prepared=True):
            return "is prepared", f"{member.rank}@{agent}"
        case do.PlaceMember(agent=agent, member=member, ring=ring, port=port):
            source = " from memory" if command.memory else " from the store" if command.checkpoint else ""
            generation = f" in generation {member.generation}" if member.generation > 1 else ""
            into = f" in ring {ring}" if ring else f" at port {port}" if port else generation
            return f"start{into}{source}", f"{member.rank}@{agent}"
        case do.Refused(agent=agent):
            return "refused", agent
        case do.DropAgent(agent=agent):
            return "lost", agent
        case do.Send(agent=agent, message=m.RenameMember(successor=successor)):
            return "renamed", f"{successor.rank}@{agent}"
        case do.Send(agent=agent, message=m.AskSnapshot(member=member, in_store=in_store)):
            return "saves and pauses" if in_store else "pause", str(member.rank)
        case do.Send(agent=agent, message=m.StopMember()):
            return "end", agent
        case do.Send(message=m.Advise(member=member)):
            return "advised to stop", str(member.rank)
        case do.Send(message=m.Seating(member=member) as seating):
            return _seated(seating), str(member.rank)
    return "", ""


def _seated(seating: m.Seating) -> str:
    hosts = " ".join(place.host for place in seating.places)
    match stage_of(seating):
        case "broken":
            return f"leave ring {seating.ring - 1}"
        case "offered":
            return f"may leave for ring {seating.ring} of {hosts}, where {seating.moving} changes"
        case "formed":
            return f"form ring {seating.ring} of {hosts}"
    return f"train on in ring {seating.ring} of {hosts}"
