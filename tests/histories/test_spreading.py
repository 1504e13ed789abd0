"""Gangs with `spread` on several hosts, among losses of hosts, agents that come back, and drains: where members are.

Beside the rings, which have their own model, the histories know the hosts: how many members each one has, and since
when another one could have taken a member of the fullest. They find each of the mistakes of `MUTANTS`.
"""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from sparktrain.base.ids import AgentId, Member
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.agents import AgentStatus
from sparktrain.state.gangs import timeouts
from sparktrain.state.gangs.gang import Gang, GangStatus
from sparktrain.state.losses.handovers import Handovers
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import FailureKind
from sparktrain.state.records import MemberRestarted
from sparktrain.state.seats.gang_facts import GangFacts
from sparktrain.state.seats.policies import crowded
from sparktrain.state.seats.seat_change import ChangeReason, SeatChange
from tests.histories.ring_model import RingModel
from tests.histories.test_gangs import check_end, check_journal, check_members, finish
from tests.histories.test_healing_rings import deed
from tests.unit.state.world import LEASE_S, World

HISTORIES = 160
EVENTS = 40
RESTARTS = 40
TICK_S = 1.0
HOSTS = "abcd"
SETTLEMENT = ["start", "declare", "tick", "tick", "tick", "ready", "move", "start", "heal all", "declare", "step"]
"""All goes well, up to some point: a member that is to move does so."""
DEEDS = [
    *("settle", "settle", "settle", "settle", "settle", "settle", "tick", "tick", "lose host", "come", "come", "come"),
    *("come", "lose busy", "die", "drain host", "drain agent", "cancel", "declare", "unable", "heal all", "move"),
]
SPREAD = "spread: its host had "
ALL_HISTORIES = pytest.mark.all(case="160 histories", covered_by="a quarter of them; mistakes that they must find")


class History:
    """A run that places and moves members over hosts."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(Machine(LEASE_S, 0.0), cases=1)
        self.size = self.random.choice([2, 3, 3, 4, 4])
        self.model = RingModel(self.world)
        self.names: list[AgentId] = []
        self.requests = 0
        self.step = 1
        self.able: set[Member] = set()
        self.heard = 0
        self.losses: set[Member] = set()
        """Members that were really lost."""
        self.accepted: set[Member] = set()
        """Processes that have started on a host with room: others may come to that host later."""
        self.crowded_since: float | None = None
        self.standing: tuple[object, ...] = ()
        """Where the members were then."""
        self.world.begin(
            size=self.size, max_retries=RESTARTS, heals=True, recovers=True, spread=True, join_timeout_s=12.0
        )
        for _ in range(self.size + self.random.randint(0, 2)):
            self.come(self.random.choice(HOSTS[:2]))
        self.world.suggest()

    def play(self) -> tuple[int, int]:
        """Returns how many members moved because of their hosts, and how many rings healed after a loss."""
        for what in ["settle", *self.random.choices(DEEDS, k=EVENTS)]:
            which = self.random.randint(0, 7)
            parts = SETTLEMENT[: 4 + 2 * which] if what == "settle" else [what]
            for part in parts:
                self.deed(part, which)
                self.world.suggest()
                check_members(self.world)
                self.model.check()
                self.check()
        check_journal(self.world)
        finish(self.world)
        check_end(self.world, RESTARTS)
        restarts = [record.restart for record in self.world.records if isinstance(record, MemberRestarted)]
        moves = [restart for restart in restarts if restart.cause.startswith(SPREAD)]
        for restart in moves:
            assert (restart.steps_lost, restart.paused, restart.healed) == (0, True, True), "a move is no loss"
        return len(moves), sum(restart.healed and not restart.paused for restart in restarts)

    # ---- what happens

    def deed(self, what: str, which: int) -> None:
        """One thing that may happen."""
        if what == "come":
            self.come(HOSTS[which % len(HOSTS)])
        elif what == "tick":
            self.world.tick(TICK_S)
        elif what == "lose host":
            host = HOSTS[which % 3]
            for agent in [agent for agent in self.world.machine.agents.all() if agent.host == host]:
                self.lose(agent.id)
        elif what == "drain host":
            self.drain(HOSTS[which % 3])
        elif what == "cancel":
            self.drain(HOSTS[which % 3], cancels=True)
        elif what in ("die", "lose busy") and self.world.running:
            agent = sorted(self.world.running)[which % len(self.world.running)]
            if what == "lose busy":
                self.lose(agent)
            else:
                self.losses.add(self.world.running[agent])
                self.world.fail(agent, FailureKind.SIGNAL)
        elif what == "step":
            self.step += 2
            for agent in sorted(self.world.running):
                self.world.step(agent, self.step)
        elif what not in ("die", "lose busy"):
            # Members leave and join their rings after the step that all have made.
            before = set(self.world.running.values())
            sweep = self.world.machine.sweep
            waits = sweep is not None and any(gang.handovers.current is not None for gang in sweep.gangs.values())
            deed(self.world, what, self.step if what in ("move", "heal all") else which, self.names)
            if what == "move" and not waits:
                # It leaves while it does not know that the offer is withdrawn, and is lost.
                self.losses |= before - set(self.world.running.values())

    def come(self, host: str) -> None:
        """An agent joins on a host."""
        number = len(self.names)
        self.names.append(self.world.join(f"{host}{number}", host, number))

    def lose(self, agent: AgentId) -> None:
        """An agent is lost, and its member with it."""
        if agent in self.world.running:
            self.losses.add(self.world.running[agent])
        self.world.lose(agent)

    def drain(self, host: str, *, cancels: bool = False) -> None:
        """A host is to get no members, or may get some again."""
        self.requests += 1
        self.world.drain(host, request=str(self.requests), cancels=cancels)

    # ---- what must hold

    def check(self) -> None:
        """What has happened since the last call, by the hosts."""
        for fed in self.world.fed[self.heard :]:
            if isinstance(fed.message, m.MemberStands):
                moves = fed.message.standing.heals and fed.message.standing.moves
                (self.able.add if moves else self.able.discard)(fed.message.member)
        self.heard = len(self.world.fed)
        sweep = self.world.machine.sweep
        gang = None if sweep is None else next(iter(sweep.gangs.values()), None)
        self.check_moves(gang)
        standing = () if gang is None else (gang.generation, gang.agents, gang.absences.newest_ring)
        if gang is None or not self.could_move(gang) or standing != self.standing:
            self.crowded_since = None
            self.standing = standing
            if gang is None or not self.could_move(gang):
                return
        self.crowded_since = self.world.at if self.crowded_since is None else self.crowded_since
        waited_s = self.world.at - self.crowded_since
        assert waited_s <= timeouts.COOLDOWN_S + TICK_S, (
            f"{self.members_on(gang)} since {waited_s:g} s, and others have room"
        )

    def check_moves(self, gang: Gang | None) -> None:
        """One process at a time waits for the place of a member, and no ring breaks for it."""
        sweep = self.world.machine.sweep
        members = set() if gang is None else {member for _, member in gang.live()}
        stopped = {message.member for message in self.world.sent(m.StopMember)}
        stands = [fed.message for fed in self.world.fed if isinstance(fed.message, m.MemberStands)]
        left = {message.member for message in stands if message.standing.leaves}
        prepared = {start.member for start in self.world.all(do.PlaceMember) if start.prepared}
        waiting = set(self.world.running.values()) & prepared - members - stopped - left
        assert len(waiting) <= 1, f"two members move at once: {waiting}"
        for broken in self.world.seatings("broken"):
            generation = {member for member in self.losses if member.generation == broken.member.generation}
            assert generation, "a ring breaks, and no member is lost"
        if gang is None or sweep is None:
            return
        present = self.members_on(gang)
        for process in gang.handovers.processes:
            if process.change.reason is ChangeReason.CROWDED and process.member not in members:
                source = self.world.machine.agents.get(gang.agents[process.rank])
                host = process.place.host
                is_fuller = source is None or present[host] + 1 > max(present[source.host], 1)
                assert not is_fuller or process.member in self.accepted, "a member moves to a host with more members"
                self.accepted.add(process.member)

    def members_on(self, gang: Gang) -> Counter[str]:
        """How many members of the gang each host has."""
        agents = [self.world.machine.agents.get(agent) for agent, _ in gang.live()]
        return Counter(agent.host for agent in agents if agent is not None)

    def could_move(self, gang: Gang) -> bool:
        """Whether the gang trains, a host has more than half of its members, and another one has room."""
        sweep = self.world.machine.sweep
        assert sweep is not None
        live = {member for _, member in gang.live()}
        trains = gang.status is GangStatus.RUNNING and live <= set(self.world.running.values()) and live <= self.able
        is_whole = len(live) == self.size and not gang.absences.by_rank and gang.fault.first is None
        is_over = gang.stop.has_started or gang.stop.pauses(self.world.at) or sweep.stop is not None
        moves = gang.handovers.current is not None or gang.handovers.failures
        if not (trains and is_whole) or is_over or moves:
            return False
        on_host = self.members_on(gang)
        most = max(on_host.values())
        agents = self.world.machine.agents.all()
        free = [
            agent
            for agent in agents
            if agent.id not in self.world.running and agent.member is None and not sweep.drains.covers(agent)
        ]
        has_room = any(on_host[agent.host] + 1 < most for agent in free)
        return most > max(1, self.size // 2) and has_room


# ---- mistakes


def _never(facts: GangFacts) -> None:
    """No member moves for its host."""


def _most_on_host(sweep: Any, size: int) -> int:
    """A host may have all members but one."""
    return size - 1


_start = Handovers.start


def _twice(handovers: Handovers, gang: Gang, change: SeatChange, at: float) -> list[do.Command]:
    """A second member moves before the first one has."""
    commands = _start(handovers, gang, change, at)
    free = [agent for agent in handovers._agents.all() if agent.status is AgentStatus.IDLE]
    if change.reason is ChangeReason.CROWDED and free:
        gang.handovers.current = None
        commands += _start(handovers, gang, replace(change, agent=free[0]), at)
    return commands


def _broken(handovers: Handovers, gang: Gang, change: SeatChange, at: float) -> list[do.Command]:
    """The ring breaks for a member that is to move, as if that were lost."""
    commands = _start(handovers, gang, change, at)
    if change.reason is ChangeReason.CROWDED:
        gang.absences.newest_ring += 1
        broken = partial(m.Seating, ring=gang.absences.newest_ring)
        commands += [do.Send(agent, broken(member=member)) for agent, member in gang.live()]
    return commands


def _anywhere(facts: GangFacts) -> SeatChange | None:
    """A member moves to any idle agent, also on its own host."""
    change = crowded(facts)
    crowd = "" if change is None or change.rank is None else facts.gang.places[change.rank].host
    own = [agent for agent in facts.idle if agent.host == crowd]
    return replace(change, agent=own[0]) if change is not None and own else change


def _at_once(facts: GangFacts) -> bool:
    """A member moves from any ring, also while another one is away."""
    return facts.gang.status is GangStatus.RUNNING


def _as_loss(gang: Gang, rank: Any, absence: Any) -> None:
    """A move counts as the loss of the member."""
    absence.planned = None
    _depart(gang, rank, absence)


_depart = Gang.depart

MUTANTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "moves no member": partial(patch, "sparktrain.state.losses.seat_changes.crowded", _never),
    "takes almost all for half": partial(patch, "sparktrain.state.seats.policies.most_on_host", _most_on_host),
    "moves two members at once": partial(patch.object, Handovers, "start", _twice),
    "breaks the ring": partial(patch.object, Handovers, "start", _broken),
    "moves to a full host": partial(patch, "sparktrain.state.losses.seat_changes.crowded", _anywhere),
    "moves while another one is away": partial(patch.object, GangFacts, "moves", property(_at_once)),
    "counts a move as a loss": partial(patch.object, Gang, "depart", _as_loss),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_histories_find_the_mistake(mutant: str) -> None:
    with MUTANTS[mutant](), pytest.raises(AssertionError):
        play_all()


def play_all() -> None:
    """What these tests play."""
    for seed in range(HISTORIES):
        History(seed).play()


@pytest.mark.parametrize("part", [0, *(pytest.param(number, marks=ALL_HISTORIES) for number in range(1, 4))])
def test_no_host_keeps_more_than_half_of_the_members_while_another_one_has_room(part: int) -> None:
    quarter = HISTORIES // 4
    counts = [History(part * quarter + number).play() for number in range(quarter)]
    for reached in zip(*counts, strict=True):
        assert sum(count > 0 for count in reached) > quarter // 8, "the histories must reach what they check"
