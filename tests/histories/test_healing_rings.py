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
from msgspec.structs import replace

from sparktrain.base.ids import CHIEF, AgentId, Member, Rank
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.gangs import timeouts
from sparktrain.state.gangs.gang import Gang, GangStatus
from sparktrain.state.gangs.gang_progress import GangAttendance
from sparktrain.state.losses.absence import MemberAbsences
from sparktrain.state.losses.handover import Handover
from sparktrain.state.losses.handovers import Handovers
from sparktrain.state.losses.member_restart import MemberRestarts
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import FailureKind
from sparktrain.state.records import MemberRestarted
from sparktrain.state.seats.gang_facts import GangFacts
from sparktrain.state.seats.seat import SeatState
from tests.histories.ring_model import RingModel
from tests.histories.test_gangs import act, check_end, check_journal, check_members, check_memory, finish
from tests.unit.state.world import LEASE_S, World, stage_of

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
    formed = [form.ring for form in world.seatings("formed") if form.member == member]
    offered = [offer.ring for offer in world.seatings("offered") if offer.member == member]
    return max([*formed, *offered], default=0)


def prepared_on(world: World) -> set[AgentId]:
    """The agents with a process that was started to wait for a place."""
    prepared = {each.member for each in world.all(do.PlaceMember) if each.prepared}
    return {agent for agent, member in world.running.items() if member in prepared}


def joins(world: World, offer: m.Seating) -> bool:
    """Whether the process that is offered takes a vacant place."""
    assert world.machine.sweep is not None
    gang = world.machine.sweep.gangs.get(offer.member.trial)
    return gang is not None and offer.moving in gang.absences.vacant


def move(world: World, which: int) -> None:
    """A member leaves its ring for a process that waits for its place; mostly it ends then."""
    for offer in world.seatings("offered")[::-1]:
        agents = [agent for agent, member in world.running.items() if member == offer.member]
        if agents and offer.member.rank == CHIEF and joins(world, offer):
            world.leave_ring(agents[0], offer.ring, which)
            return
        if agents and offer.member.rank == offer.moving:
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
        world.tick(timeouts.COOLDOWN_S)
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


def _forgets_who_cannot(attendance: GangAttendance, rank: Rank, standing: m.Standing) -> m.Standing:
    """A member that leaves its call of `fit` still counts as one that heals."""
    return _stand(attendance, rank, replace(standing, heals=True))


def _any_ring(gang: Gang) -> dict[Rank, int]:
    """Who has joined the broken ring counts for the next one."""
    return {rank: standing.step for rank, standing in gang.attendance.standings.items() if standing.ring}


def _same_process(absences: MemberAbsences, rank: Rank, absence: Any, *, had_steps: bool) -> None:
    """The next process has the number of the lost one: what that still sends counts."""
    absences.by_rank[rank] = absence


def _hurried(restarts: MemberRestarts, gang: Gang, at: float) -> list[do.Command]:
    """The gang counts as healed when one member is there."""
    for rank in list(gang.absences.by_rank if gang.joined else ()):
        restarts._sweep.returned(gang, rank, gang.heal(rank, at), at)
    return []


_healed = MemberRestarts.healed
_stand = GangAttendance.stand


def _mute(restarts: MemberRestarts, gang: Gang, at: float) -> list[do.Command]:
    """No member learns that all have joined the ring."""
    _healed(restarts, gang, at)
    return []


def _early(restarts: MemberRestarts, gang: Gang, at: float) -> list[do.Command]:
    """Each member trains on when it has joined the ring itself."""
    gang.absences.ring = gang.absences.newest_ring
    seatings = [each for each in gang.seatings(joined=True) if each[1].ring and each[1].member.rank in gang.joined]
    return [*_healed(restarts, gang, at), *(do.Send(*each) for each in seatings)]


_break_ring = MemberRestarts._break_ring


def _silent(restarts: MemberRestarts, gang: Gang, at: float) -> list[do.Command]:
    """The others hear nothing of the loss."""
    commands = _break_ring(restarts, gang, at)
    return [each for each in commands if not isinstance(each, do.Send) or stage_of(each.message) != "broken"]


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


_reserved = MemberRestarts.reserved


def _alone(restarts: MemberRestarts, gang: Gang, rank: Rank, port: int) -> list[do.Command] | None:
    """Only the next process learns the places of the next ring."""
    commands = _reserved(restarts, gang, rank, port)
    return commands[:1] if commands else commands


def _first_only(restarts: MemberRestarts, gang: Gang, rank: Rank, port: int) -> list[do.Command] | None:
    """The ring forms once one of the next processes has its port."""
    for absence in gang.absences.by_rank.values():
        absence.reserved = False
    commands = _reserved(restarts, gang, rank, port)
    away = gang.absences.by_rank
    if rank not in away or not away[rank].reserved:
        return commands
    return [do.Send(agent, seating) for agent, seating in gang.seatings()]


def _most_lost(restarts: MemberRestarts, gang: Gang, rank: Rank, failure: Any, at: float) -> bool:
    """A ring heals as long as one member has kept its process."""
    others = {Rank(other) for other in range(gang.size)} - {rank, *gang.absences.by_rank}
    return bool(others) and others <= gang.attendance.heals and not gang.attendance.ended


def _ignored(restarts: MemberRestarts, gang: Gang, rank: Rank, outcome: Any) -> Any:
    """A member that returns while the ring heals is not missed."""
    return outcome


def _any_change(facts: GangFacts) -> bool:
    """Members move also where some member cannot change its ring."""
    return facts.gang.status is GangStatus.RUNNING and facts.gang.size > 1


def _kept(handovers: Handovers, gang: Gang, handover: Handover) -> list[do.Command]:
    """The members do not learn that the process is gone."""
    return []


_withdrawn = Handovers._withdrawn


def _advanced(handovers: Handovers, gang: Gang, handover: Handover) -> list[do.Command]:
    """The members learn that they are in the ring that was offered."""
    gang.absences.ring = gang.absences.newest_ring
    return _withdrawn(handovers, gang, handover)


def _forgotten(handovers: Handovers, gang: Gang, handover: Handover, at: float, **_: bool) -> list[do.Command]:
    """A process that is not needed any more is left to itself."""
    gang.handovers.current = None
    return []


_lost = Handovers.lost


def _unready(handovers: Handovers, gang: Gang, rank: Rank, at: float) -> list[do.Command]:
    """A process takes a place before it waits for one."""
    if gang.handovers.current is not None:
        gang.handovers.current.ring = 1
    return _lost(handovers, gang, rank, at)


def _shrunk(gang: Gang, sweep: Any, *, least: int = 1, chief: bool = True, able: bool = True) -> bool:
    """Whether the members that are left may form a smaller ring, by rules where one may be missing."""
    away = gang.absences.by_rank
    remaining = set(gang.ranks) - away.keys()
    if sweep.spec.gang.min_workers is None or len(remaining) < least or (chief and CHIEF not in remaining):
        return False
    waits = all(absence.ring and absence.state is SeatState.EMPTY for absence in away.values())
    return waits and (not able or remaining <= gang.attendance.shrinks)


def _too_small(facts: GangFacts) -> bool:
    """A ring continues with any number of members."""
    return _shrunk(facts.gang, facts.sweep)


def _without_chief(facts: GangFacts) -> bool:
    """A ring continues without its chief."""
    return _shrunk(facts.gang, facts.sweep, least=facts.sweep.spec.gang.min_workers or 0, chief=False)


def _unable(facts: GangFacts) -> bool:
    """A ring continues with members that cannot divide their data once more."""
    return _shrunk(facts.gang, facts.sweep, least=facts.sweep.spec.gang.min_workers or 0, able=False)


def _beside_vacant(gang: Gang, rank: Rank, at: float) -> Any:
    """A next process joins a ring with a vacant place."""
    return gang.heal(rank, at)


def _again(absences: MemberAbsences, rank: Rank) -> int:
    """A process has the number of one that did not take its place."""
    return absences.incarnations.get(rank, 0) + 1


MUTANTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "heals a member that cannot": partial(patch.object, GangAttendance, "stand", _forgets_who_cannot),
    "does not fence the lost process": partial(patch.object, MemberAbsences, "depart", _same_process),
    "is healed too early": partial(patch.object, MemberRestarts, "healed", _hurried),
    "informs none that all have joined": partial(patch.object, MemberRestarts, "healed", _mute),
    "trains on before all have joined": partial(patch.object, MemberRestarts, "healed", _early),
    "does not break the ring": partial(patch.object, MemberRestarts, "_break_ring", _silent),
    "repeats a ring's number": partial(patch.object, MemberRestarts, "_break_ring", _same_ring),
    "informs the next process alone": partial(patch.object, MemberRestarts, "reserved", _alone),
    "moves a member from any ring": partial(patch.object, GangFacts, "moves", property(_any_change)),
    "keeps an offer without a process": partial(patch.object, Handovers, "_withdrawn", _kept),
    "withdraws an offer as if it were taken": partial(patch.object, Handovers, "_withdrawn", _advanced),
    "forgets a prepared process": partial(patch.object, Handovers, "_end", _forgotten),
    "gives a place to an unready process": partial(patch.object, Handovers, "lost", _unready),
    "gives a number twice": partial(patch.object, MemberAbsences, "next_incarnation", _again),
    "heals the loss of most members": partial(patch.object, MemberRestarts, "_heals", _most_lost),
    "keeps next processes of a broken ring": partial(patch.object, MemberRestarts, "_break_ring", _keeps_next),
    "keeps reports of a broken ring": partial(patch.object, Gang, "joined", property(_any_ring)),
    "forms a ring before all have a place": partial(patch.object, MemberRestarts, "reserved", _first_only),
    "shrinks beyond the minimum": partial(patch, "sparktrain.state.seats.policies.can_shrink", _too_small),
    "leaves out the chief": partial(patch, "sparktrain.state.seats.policies.can_shrink", _without_chief),
    "shrinks a member that cannot": partial(patch, "sparktrain.state.seats.policies.can_shrink", _unable),
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
