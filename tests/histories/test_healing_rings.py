"""Rings that heal, in any history of losses and messages: what members know of the rings, by the messages alone.

The model stands beside the machine. It knows which member has declared what, which ring each one has heard of, and who
has reported equal state in it. The same histories find each of the mistakes of `MUTANTS`.
"""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from sparktrain.ids import CHIEF, AgentId, Generation, Member, Rank, TrialId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.gangs.gang import Gang, GangStatus
from sparktrain.state.losses.absence import AbsenceStage, MemberAbsences
from sparktrain.state.losses.growth import GROW_AFTER_S
from sparktrain.state.losses.handover import Handover, HandoverStage
from sparktrain.state.losses.handovers import Handovers
from sparktrain.state.losses.member_restart import MemberRestarts
from sparktrain.state.losses.standbys import Standbys
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import FailureKind
from sparktrain.state.records import MemberRestarted
from tests.histories.test_gangs import act, check_end, check_journal, check_members, check_memory, finish
from tests.unit.state.world import LEASE_S, World

HISTORIES = 400
EVENTS = 40
RESTARTS = 3
DEEDS = [
    "die", "die", "join", "recover", "recover", "recover", "heal", "heal", "declare", "unable", "step", "lose", "write",
    "drain", "drain", "ready", "ready", "move", "move", "relocate", "relocate", "relocate", "relocate", "relocate",
    "replace", "replace", "replace", "dwindle", "arrive", "arrive", "arrive", "hold", "again", "explain", "tick",
    "hang", "late", "start", "enter", "succeed", "fail", "ring", "lost", "leave",
]  # fmt: skip
RELOCATION = ["declare", "drain agent", "ready", "move", "start", "heal", "heal"]
"""The agent of a member is drained, and all goes well, up to some point."""
REPLACEMENT = ["declare", "tick", "ready", "die", "heal", "heal"]
"""A process waits, and takes the place of a member that is lost, up to some point."""
SHRINKAGE = ["able", "lose busy", "heal all", "step", "able", "lose busy", "heal all"]
"""Agents are lost, and perhaps nothing replaces them: the members that are left continue."""
COMEBACK = ["able", "lose last", "heal all", "step", "able", "join", "wait", "ready", "move", "start", "heal all"]
"""An agent comes back after the ring has become smaller."""
PARTS = {"relocate": RELOCATION, "replace": REPLACEMENT, "dwindle": SHRINKAGE, "come back": COMEBACK}
OPENINGS = [
    *(["relocate", "relocate"], ["die", "start", "arrive", "die", "start"], ["dwindle"], ["come back"]),
    *(["drain agent", "die"], ["drain agent", "ready", "die"], ["relocate", "relocate", "relocate"]),
    *(["replace", "replace", "replace"], ["replace", "replace", "replace", "replace"]),
]
"""How histories start."""
ALL_HISTORIES = pytest.mark.all(case="400 histories", covered_by="a quarter of them; mistakes that they must find")

RingKey = tuple[TrialId, Generation, int]


class RingModel:
    """What the members of one run know."""

    def __init__(self, world: World, standby: int = 0) -> None:
        self.world = world
        self.standby = standby
        """The most processes of a gang that wait for a loss."""
        self._commands = 0
        self._fed = 0
        self._able: set[Member] = set()
        self._newest: dict[tuple[TrialId, Generation], int] = {}
        self._notified: dict[RingKey, set[Rank]] = {}
        """Members that were asked to leave the ring before this one."""
        self._formed: dict[RingKey, dict[Member, object]] = {}
        """The places that members of a ring have."""
        self._healed: dict[RingKey, set[Member]] = {}
        self._fresh: set[Member] = set()
        """Next processes in rings that have not healed yet."""
        self._recorded = 0
        self._offers: dict[Member, m.OfferHandover] = {}
        """The processes that members know to wait for a place in their ring."""
        self._prepared: set[Member] = set()
        """Processes that were started to wait for a place."""
        self._ready: set[Member] = set()
        """Those of them that wait."""
        self._bound: set[Member] = set()
        """Those that can take the place of their own rank alone."""
        self._former: set[Member] = set()
        """Names of processes that have another one since."""
        self._dismissed: set[Member] = set()
        """Processes that were asked to end, or have left their gang."""
        self._shrinking: set[Member] = set()
        """Members that can continue in a smaller ring."""
        self._comebacks: set[tuple[Member, int]] = set()
        """Members that know of a process for a vacant place, and the ring that they form with it."""
        self._vacant: dict[tuple[TrialId, Generation], set[Rank]] = {}
        """The members that others train without."""
        self._acknowledged: dict[tuple[TrialId, Generation], int] = {}
        """The newest incarnation of a chief that has an acknowledged checkpoint."""

    def check(self) -> None:
        """What has happened since the last call."""
        commands = self.world.commands[self._commands :]
        self._commands = len(self.world.commands)
        # First: a gang that waits for an agent shrinks when its last member can.
        for fed in self.world.fed[self._fed :]:
            if isinstance(fed.message, m.MemberHeals):
                shrinks = fed.message.heals and fed.message.shrinks
                (self._shrinking.add if shrinks else self._shrinking.discard)(fed.message.member)
        for command in commands:
            if isinstance(command, do.Send):
                self._send(command.message)
            elif isinstance(command, do.PlaceMember):
                self._place(command)
        self._check_survivors(commands)
        for form in formed_in(commands):
            notified = self._formed.get((form.member.trial, form.member.generation, form.ring))
            ranks = None if notified is None else {member.rank for member in notified}
            assert ranks is None or len(ranks) == len(form.places), "a member does not get the places of its ring"
        for fed in self.world.fed[self._fed :]:
            self._hear(fed.message)
        self._fed = len(self.world.fed)
        self._check_records()
        self._check_processes()

    def _send(self, message: m.StateOutput) -> None:
        generation = message.member.trial, message.member.generation
        assert message.member not in self._former, "a process is called by a name that it has no more"
        if isinstance(message, m.RenameMember):
            self._rename(message.member, message.successor)
        elif isinstance(message, m.RingBroken):
            assert message.member in self._able, f"{message.member} is asked to heal, and cannot"
            notified = self._notified.setdefault((*generation, message.ring), set())
            assert message.member.rank not in notified, "the ring is an older one"
            self._newest[generation] = message.ring
            notified.add(message.member.rank)
            self._offers.pop(message.member, None)
        elif isinstance(message, m.OfferHandover) and message.places:
            assert message.member in self._able, f"{message.member} is asked to change its ring, and cannot"
            if message.rank in self._vacant.get(generation, ()):
                self._comebacks.add((message.member, message.ring))
            self._newest[generation] = message.ring
            self._offers[message.member] = message
            self._notified.setdefault((*generation, message.ring), set()).add(message.member.rank)
            self._formed.setdefault((*generation, message.ring), {})[message.member] = message.places
        elif isinstance(message, m.OfferHandover):
            self._offers.pop(message.member, None)
        elif isinstance(message, m.StopMember):
            self._dismissed.add(message.member)
        elif isinstance(message, m.FormGang) and message.ring:
            assert message.ring == self._newest.get(generation), "a ring forms that is not the newest"
            joined = [key for key, places in self._formed.items() if key[:2] == generation and message.member in places]
            assert message.member not in self._fresh or not joined, "a process without a state joins a second ring"
            assert not message.ranks or message.member in self._shrinking, "the ring shrinks, and a member cannot"
            if not message.ranks:
                self._vacant.pop(generation, None)
            is_ready = message.member not in self._prepared or message.member in self._ready
            assert is_ready, "a process gets a place that does not wait for one"
            self._offers = {
                member: offer
                for member, offer in self._offers.items()
                if (member.trial, member.generation) != generation or offer.ring > message.ring
            }
            self._formed.setdefault((*generation, message.ring), {})[message.member] = message.places
        elif isinstance(message, m.AckCheckpoint):
            newest = self._acknowledged.get(generation, 0)
            assert message.member.incarnation >= newest, "a checkpoint of a chief counts after that of its successor"
            self._acknowledged[generation] = message.member.incarnation

    def _rename(self, member: Member, successor: Member) -> None:
        assert member in self._ready, "a process takes a place that does not wait for one"
        assert member not in self._bound or member.rank == successor.rank, "a process takes a place of another rank"
        assert successor not in self._prepared, "two processes have the same name"
        self._former.add(member)
        self._prepared.add(successor)
        self._ready.add(successor)

    def _check_survivors(self, commands: list[do.Command]) -> None:
        """Half of the members, at least, have kept the process with which they trained in the ring that broke."""
        broken = [each.message for each in commands if isinstance(each, do.Send)]
        for message in broken:
            if not isinstance(message, m.RingBroken) or self.world.machine.sweep is None:
                continue
            gang = self.world.machine.sweep.gangs.get(message.member.trial)
            if gang is not None and gang.generation == message.member.generation:
                key = gang.trial, gang.generation, message.ring
                members = self._notified[key] | gang.absences.by_rank.keys()
                assert 2 * len(self._notified[key]) >= len(members), "a ring heals that has lost most of its members"
                assert message.member not in self._fresh, "a process without a state is asked to keep it"

    def _place(self, start: do.PlaceMember) -> None:
        if start.prepared:
            assert (start.ring, start.memory) == (0, None), "the process has no place in a ring yet"
            self._prepared.add(start.member)
            return
        newest = self._newest.get((start.member.trial, start.member.generation), 0)
        assert start.ring == (newest if start.member.incarnation else 0), "the member joins another ring"
        assert not (start.ring and start.memory), "the ring gives the member its state"
        if start.ring:
            assert (start.member.trial, start.member.generation) not in self._vacant, "it has the share of another rank"
            self._fresh.add(start.member)

    def _hear(self, message: m.MemberMessage) -> None:
        if isinstance(message, m.MemberHeals):
            (self._able.add if message.heals else self._able.discard)(message.member)
        elif isinstance(message, m.MemberHealed):
            key = message.member.trial, message.member.generation, message.ring
            self._healed.setdefault(key, set()).add(message.member)
        elif isinstance(message, m.MemberPrepared):
            if message.bound and message.member not in self._ready:
                self._bound.add(message.member)
            self._ready.add(message.member)
        elif isinstance(message, m.MemberLeft) and (message.member, message.ring) in self._comebacks:
            pass  # the chief reports it for all, and stays
        elif isinstance(message, m.MemberLeft):
            self._dismissed.add(message.member)
            self._offers.pop(message.member, None)
            key = message.member.trial, message.member.generation, message.ring
            self._formed.get(key, {}).pop(message.member, None)
            self._notified.get(key, set()).discard(message.member.rank)

    def _check_processes(self) -> None:
        gangs = self.world.machine.sweep.gangs.values() if self.world.machine.sweep is not None else ()
        members = {member for gang in gangs for _, member in gang.live()}
        running = set(self.world.running.values())
        waiting = {
            (member.trial, member.generation, member.rank) for member in (running & self._prepared) - self._dismissed
        }
        current = {process.member for gang in gangs for process in gang.handovers.processes}
        assert all(len(gang.handovers.standbys) <= self.standby for gang in gangs), "too many processes wait"
        assert running <= members | current | self._dismissed, "a process trains that belongs to no gang"
        lasting = [gang for gang in gangs if gang.fault.first is None and not gang.stop.has_started]
        trained = {member for gang in lasting for _, member in gang.live() if not gang.attendance.ended}
        for member, offer in self._offers.items():
            if member in trained & running:
                able = (running & self._ready) - self._bound - self._dismissed
                other = any((each.trial, each.generation) == (member.trial, member.generation) for each in able)
                assert other or (member.trial, member.generation, offer.rank) in waiting, "nothing waits for the place"

    def _vacate(self, key: RingKey, ranks: set[Rank], size: int) -> None:
        """The members of a smaller ring have joined it."""
        sweep = self.world.machine.sweep
        assert sweep is not None
        assert size >= (sweep.spec.gang.min_workers or 99), "a ring is smaller than the run allows"
        assert CHIEF not in ranks, "no member saves or reports"
        self._vacant.setdefault(key[:2], set()).update(ranks)

    def _check_records(self) -> None:
        restarts = [each for each in self.world.records if isinstance(each, MemberRestarted)]
        for record in restarts[self._recorded :]:
            key = record.trial, record.generation, self._newest[record.trial, record.generation]
            formed = self._formed.get(key, {})
            assert formed, "a ring counts as healed that could not form"
            assert len(set(map(str, formed.values()))) == 1, "members of a ring know different places"
            size = len(next(iter(formed.values())))
            assert len({member.rank for member in formed}) == size, "a member does not know the others of its ring"
            over = [each.restart for each in restarts[self._recorded :] if each.trial == record.trial]
            lost = {Rank(restart.rank) for restart in over}
            vacated = {Rank(restart.rank) for restart in over if restart.members is not None}
            if vacated:
                self._vacate(key, vacated, size)
            notified = self._notified[key] | (lost - vacated)
            self._fresh -= formed.keys()
            assert len(notified) == size, "a member has not left its ring"
            assert not self._notified[key] & lost, "a member that kept its process counts as lost"
            assert formed.keys() <= self._healed.get(key, set()), "a ring counts as healed, and a member is not there"
            assert record.restart.healed
        self._recorded = len(restarts)
        for gang in self.world.machine.sweep.gangs.values() if self.world.machine.sweep is not None else ():
            fails = gang.fault.cause is not None or gang.stop.has_started
            assert fails or gang.absences.healing is None or not gang.attendance.ended, "a member is gone for good"


def formed_in(commands: list[do.Command]) -> list[m.FormGang]:
    """The messages with which members form a ring."""
    return [each.message for each in commands if isinstance(each, do.Send) and isinstance(each.message, m.FormGang)]


def late(world: World, which: int) -> None:
    """The process before that of some member still sends what it would have sent."""
    restarted = [(agent, member) for agent, member in sorted(world.running.items()) if member.incarnation]
    if not restarted:
        return
    agent, member = restarted[which % len(restarted)]
    older = Member(member.run, member.trial, member.generation, member.rank, member.incarnation - 1)
    world.running[agent] = older
    world.written += 1
    world.write(agent, world.written)
    world.heal(agent, newest_ring(world, member), which)
    world.running[agent] = member


def newest_ring(world: World, member: Member) -> int:
    """The newest ring with places that the member has."""
    formed = [form.ring for form in world.sent(m.FormGang) if form.member == member]
    offered = [offer.ring for offer in world.sent(m.OfferHandover) if offer.member == member and offer.places]
    return max([*formed, *offered], default=0)


def prepared_on(world: World) -> set[AgentId]:
    """The agents with a process that was started to wait for a place."""
    prepared = {each.member for each in world.all(do.PlaceMember) if each.prepared}
    return {agent for agent, member in world.running.items() if member in prepared}


def joins(world: World, offer: m.OfferHandover) -> bool:
    """Whether the process that is offered takes a vacant place."""
    assert world.machine.sweep is not None
    gang = world.machine.sweep.gangs.get(offer.member.trial)
    return gang is not None and offer.rank in gang.absences.vacant


def move(world: World, which: int) -> None:
    """A member leaves its ring for a process that waits for its place; mostly it ends then."""
    for offer in world.sent(m.OfferHandover)[::-1]:
        agents = [agent for agent, member in world.running.items() if member == offer.member]
        if offer.places and agents and offer.member.rank == CHIEF and joins(world, offer):
            world.leave_ring(agents[0], offer.ring, which)
            return
        if offer.places and agents and offer.member.rank == offer.rank:
            world.leave_ring(agents[0], offer.ring, which)
            if which % 4:
                world.fail(agents[0], FailureKind.LOST)
            return


def deed(world: World, what: str, which: int, names: list[AgentId]) -> None:
    """One thing that may happen, also to rings."""
    busy = sorted(world.running)
    if what == "die" and busy:
        world.fail(busy[which % len(busy)], FailureKind.MEMORY)
    elif what == "declare":
        for agent in busy:
            world.declare(agent, shrinks=which % 3 > 0)
    elif what == "able":
        for agent in busy:
            world.declare(agent, shrinks=True)
    elif what == "wait":
        world.tick(GROW_AFTER_S)
    elif what == "lose last" and busy:
        world.lose(busy[-1])
    elif what == "lose busy" and busy:
        world.lose(busy[which % len(busy)])
    elif what == "unable" and busy:
        world.declare(busy[which % len(busy)], heals=False)
    elif what == "late":
        late(world, which)
    elif what == "recover":
        act(world, "start", which, names)
        for agent in busy:
            world.heal(agent, newest_ring(world, world.running[agent]), which)
        if which % 2:
            deed(world, "declare", which, names)
    elif what == "ready":
        for agent in busy:
            if agent in prepared_on(world):
                world.prepare(agent, bound=which % 3 == 0)
    elif what == "move":
        move(world, which)
    elif what == "drain agent":
        agent = world.machine.agents.get(busy[which % len(busy)]) if busy else None
        if agent is not None:
            world.drain(agent=agent.slot, request=f"agent {len(world.records)}")
    elif what == "arrive" and busy:
        agent = busy[which % len(busy)]
        world.heal(agent, newest_ring(world, world.running[agent]), which)
    elif what in ("heal", "heal all"):
        for agent in busy[which % 2 if what == "heal" else 0 :]:
            world.heal(agent, newest_ring(world, world.running[agent]), which)
    else:
        act(world, what, which, names)


def play(seed: int, model_of: Callable[[World, int], RingModel] = RingModel) -> tuple[int, int, int, int, int]:
    """One history, checked after each deed; returns how many rings healed in it as they were, how many members moved,
    were left out, and came back, and how many places went to a process that had waited for any of them."""
    draw = random.Random(seed)
    opening = draw.choice(OPENINGS)
    comes_back = opening == ["come back"]  # then nothing else waits for an agent
    world = World(Machine(LEASE_S, draw.choice([0.0, 20.0])), cases=1 if comes_back else 2)
    size = draw.choice([2, 3, 4, 4])
    names: list[AgentId] = []
    waits = opening[0] == "replace"
    least = 1 if comes_back else None if waits else draw.choice([None, 1, min(2, size)])
    standby = 0 if least else draw.choice([1, 2]) if waits else draw.choice([0, 0, 1])
    limits: dict[str, Any] = {"hang_timeout_s": 6.0, "join_timeout_s": 12.0, "min_workers": least, "standby": standby}
    world.begin(size=size, max_retries=RESTARTS, heals=True, recovers=True, **limits)
    for number in range(size + (0 if comes_back else draw.randint(0, 3))):
        names.append(world.join(f"a{number}", f"host-{number // 2}", number))
    world.suggest()
    model = model_of(world, standby)
    for what in ["start", "declare", *opening, *draw.choices(DEEDS, k=EVENTS)]:
        which = draw.randint(0, 7)
        for part in PARTS.get(what, [what])[: 8 + which if what == "come back" else 2 + which]:
            deed(world, part, which, names)
            world.suggest()
            check_members(world)
            model.check()
    check_journal(world)
    check_memory(world)
    if draw.random() < 0.3:
        world.stop(grace_s=1.0)
        world.tick(2.0)
    finish(world)
    check_end(world, RESTARTS)
    restarts = [record.restart for record in world.records if isinstance(record, MemberRestarted)]
    moves = sum(restart.drained for restart in restarts)
    smaller = sum(restart.members is not None for restart in restarts)
    larger = sum(restart.paused and not restart.drained for restart in restarts)
    waited = len(world.sent(m.RenameMember))
    return len(restarts) - moves - smaller - larger, moves, smaller, larger, waited


@pytest.mark.parametrize("part", [0, *(pytest.param(number, marks=ALL_HISTORIES) for number in range(1, 4))])
def test_rings_heal_in_any_history(part: int) -> None:
    quarter = HISTORIES // 4
    healed = [play(part * quarter + number) for number in range(quarter)]
    for counts in zip(*healed, strict=True):
        assert sum(count > 0 for count in counts) > quarter // 20, "the histories must reach what they check"


# ---- mistakes


def _forgets_who_cannot(gang: Gang, message: m.MemberHeals) -> None:
    """A member that leaves its call of `fit` still counts as one that heals."""
    gang.attendance.declare(message.member.rank, heals=True, moves=message.moves, shrinks=message.shrinks)


def _with_absent(gang: Gang, rank: Rank, absence: Any) -> None:
    """The declaration of a lost process counts for the next one."""
    absence.step = gang.progress.last_step
    gang.absences.depart(rank, absence, had_steps=gang.progress.forget(rank))


def _same_process(absences: MemberAbsences, rank: Rank, absence: Any, *, had_steps: bool) -> None:
    """The next process has the number of the lost one: what that still sends counts."""
    absences.by_rank[rank] = absence


def _hurried(restarts: MemberRestarts, gang: Gang, message: m.MemberHealed, at: float) -> bool:
    """The gang counts as healed when one member is there."""
    for rank in list(gang.absences.by_rank):
        gang.absences.healed[message.member.rank] = message.step
        restarts._sweep.returned(gang, rank, gang.heal(rank, at), at)
    return True


_break_ring = MemberRestarts._break_ring


def _silent(restarts: MemberRestarts, gang: Gang, at: float) -> list[do.Command]:
    """The others hear nothing of the loss."""
    commands = _break_ring(restarts, gang, at)
    return [each for each in commands if not isinstance(each, do.Send) or not isinstance(each.message, m.RingBroken)]


def _same_ring(restarts: MemberRestarts, gang: Gang, at: float) -> list[do.Command]:
    """Each ring after the first has the same number."""
    gang.absences.newest_ring = 0
    return _break_ring(restarts, gang, at)


def _keeps_next(restarts: MemberRestarts, gang: Gang, at: float) -> list[do.Command]:
    """The next process of a member that has places of the broken ring is to join the ring after it."""
    reserved = [absence for absence in gang.absences.by_rank.values() if absence.reserved]
    for absence in reserved:
        absence.reserved = False
    commands = _break_ring(restarts, gang, at)
    for absence in reserved:
        absence.reserved = True
    return commands


def _keeps_reports(restarts: MemberRestarts, gang: Gang, at: float) -> list[do.Command]:
    """Who has joined the broken ring counts for the next one."""
    healed = gang.absences.healed
    commands = _break_ring(restarts, gang, at)
    gang.absences.healed = healed
    return commands


_reserved = MemberRestarts.reserved


def _alone(restarts: MemberRestarts, gang: Gang, message: m.MemberReserved) -> list[do.Command] | None:
    """Only the next process learns the places of the next ring."""
    commands = _reserved(restarts, gang, message)
    return commands[:1] if commands else commands


def _first_only(restarts: MemberRestarts, gang: Gang, message: m.MemberReserved) -> list[do.Command] | None:
    """The ring forms once one of the next processes has its port."""
    for absence in gang.absences.by_rank.values():
        absence.reserved = False
    commands = _reserved(restarts, gang, message)
    away = gang.absences.by_rank
    if message.member.rank not in away or not away[message.member.rank].reserved:
        return commands
    ring = gang.absences.newest_ring
    return [do.Send(agent, m.FormGang(peer, gang.places, ring)) for agent, peer in gang.live()]


def _most_lost(restarts: MemberRestarts, gang: Gang, rank: Rank, failure: Any, at: float) -> bool:
    """A ring heals as long as one member has kept its process."""
    others = {Rank(other) for other in range(gang.size)} - {rank, *gang.absences.by_rank}
    return bool(others) and others <= gang.attendance.heals and not gang.attendance.ended


def _ignored(restarts: MemberRestarts, gang: Gang, rank: Rank, outcome: Any) -> Any:
    """A member that returns while the ring heals is not missed."""
    return outcome


def _any_change(standbys: Standbys, gang: Gang, at: float) -> bool:
    """Members move also where some member cannot change its ring."""
    return gang.status is GangStatus.RUNNING and gang.size > 1


def _kept(handovers: Handovers, gang: Gang, handover: Handover) -> list[do.Command]:
    """The members do not learn that the process is gone."""
    return []


def _forgotten(handovers: Handovers, gang: Gang, at: float) -> list[do.Command]:
    """A process that is not needed any more is left to itself."""
    gang.handovers.current = None
    return []


_lost = Handovers.lost


def _unready(handovers: Handovers, gang: Gang, rank: Rank, at: float) -> list[do.Command]:
    """A process takes a place before it waits for one."""
    if gang.handovers.current is not None:
        gang.handovers.current.stage = HandoverStage.OFFERED
    return _lost(handovers, gang, rank, at)


def _shrunk(gang: Gang, sweep: Any, *, least: int = 1, chief: bool = True, able: bool = True) -> bool:
    """Whether the members that are left may form a smaller ring, by rules where one may be missing."""
    away = gang.absences.by_rank
    remaining = set(gang.ranks) - away.keys()
    if sweep.spec.gang.min_workers is None or len(remaining) < least or (chief and CHIEF not in remaining):
        return False
    waits = all(absence.ring and absence.stage is AbsenceStage.WAITING for absence in away.values())
    return waits and (not able or remaining <= gang.attendance.shrinks)


def _too_small(restarts: MemberRestarts, gang: Gang) -> bool:
    """A ring continues with any number of members."""
    return _shrunk(gang, restarts._sweep)


def _without_chief(restarts: MemberRestarts, gang: Gang) -> bool:
    """A ring continues without its chief."""
    return _shrunk(gang, restarts._sweep, least=restarts._sweep.spec.gang.min_workers or 0, chief=False)


def _unable(restarts: MemberRestarts, gang: Gang) -> bool:
    """A ring continues with members that cannot divide their data once more."""
    return _shrunk(gang, restarts._sweep, least=restarts._sweep.spec.gang.min_workers or 0, able=False)


def _beside_vacant(gang: Gang, rank: Rank, at: float) -> Any:
    """A next process joins a ring with a vacant place."""
    return gang.heal(rank, at)


def _again(absences: MemberAbsences, rank: Rank) -> int:
    """A process has the number of one that did not take its place."""
    return absences.incarnations.get(rank, 0) + 1


MUTANTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "heals a member that cannot": partial(patch.object, Gang, "declare", _forgets_who_cannot),
    "keeps the word of a lost process": partial(patch.object, Gang, "depart", _with_absent),
    "does not fence the lost process": partial(patch.object, MemberAbsences, "depart", _same_process),
    "is healed too early": partial(patch.object, MemberRestarts, "healed", _hurried),
    "does not break the ring": partial(patch.object, MemberRestarts, "_break_ring", _silent),
    "repeats a ring's number": partial(patch.object, MemberRestarts, "_break_ring", _same_ring),
    "informs the next process alone": partial(patch.object, MemberRestarts, "reserved", _alone),
    "moves a member from any ring": partial(patch.object, Standbys, "may_change", _any_change),
    "keeps an offer without a process": partial(patch.object, Handovers, "_withdrawn", _kept),
    "forgets a prepared process": partial(patch.object, Handovers, "_end", _forgotten),
    "gives a place to an unready process": partial(patch.object, Handovers, "lost", _unready),
    "gives a number twice": partial(patch.object, MemberAbsences, "next_incarnation", _again),
    "heals the loss of most members": partial(patch.object, MemberRestarts, "_heals", _most_lost),
    "keeps next processes of a broken ring": partial(patch.object, MemberRestarts, "_break_ring", _keeps_next),
    "keeps reports of a broken ring": partial(patch.object, MemberRestarts, "_break_ring", _keeps_reports),
    "forms a ring before all have a place": partial(patch.object, MemberRestarts, "reserved", _first_only),
    "shrinks beyond the minimum": partial(patch.object, MemberRestarts, "_shrinks", _too_small),
    "leaves out the chief": partial(patch.object, MemberRestarts, "_shrinks", _without_chief),
    "shrinks a member that cannot": partial(patch.object, MemberRestarts, "_shrinks", _unable),
    "joins a process beside a vacant place": partial(patch.object, Gang, "continue_without", _beside_vacant),
    "misses no member": partial(patch.object, MemberRestarts, "outcome", _ignored),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_histories_find_the_mistake(mutant: str) -> None:
    with MUTANTS[mutant](), pytest.raises(AssertionError):
        play_all()


def play_all() -> None:
    """What these tests play."""
    for seed in range(HISTORIES):
        play(seed)
