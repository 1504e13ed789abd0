"""Shares the agents of a pool among its runs. Pure.

Agents change hands only between two members. `Allocator.grants` looks at those that can: of no run, or of one that is
over; those that their run has no use for; those that have just lost their member; and for a run of higher priority, or
one that has just come, all without a member: those that still load code for another one come once they have it.
Each goes to the run of the highest priority that could use it, and among equals to the one that is furthest behind its
weight (`shares`). So runs share by weights what they want, and what one does not want goes to the others.

A gang needs all of its agents at once. The run that is next gets what becomes free until the gang is complete, and
no other one does: see `Reservation`. With one run the allocator gives it everything.

The cost of an event does not grow with the agents: events that free no agent and change no claim end at once, and a
contest looks at the runs, and at the agents that are contested.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from msgspec import Struct

from sparktrain.base.ids import AgentId, RunId
from sparktrain.state.agents import Agents, AgentState, AgentStatus
from sparktrain.state.allocation.claims import Claim
from sparktrain.state.allocation.shares import AHEAD_S, RunShare, let_in
from sparktrain.state.events import Allotment

FIRST_HOLD_S = 30.0
"""How long the first reservation of a gang lasts after its newest agent."""
SOFT_S = 2.0
"""How long agents wait for cases of the sampler before others may have them."""
LOOKED_AT = 32
"""How many agents more than it gets a run chooses among."""
PORTIONS = 16
"""Where very many agents are contested, a run gets this part of an equal share at a time."""


class Contender(Struct, gc=False):
    """One run in one contest."""

    share: RunShare
    claim: Claim
    free: int
    """Agents that it has without a member, less those that are contested."""
    busy: int
    accepts: Callable[[AgentState], bool]
    """Whether the run could use the agent."""
    wants: int
    """All members of the claim."""
    reserves: bool = False
    """It may keep agents for a gang that is not complete."""

    @property
    def run(self) -> RunId:
        """The run."""
        return self.share.run

    @property
    def unmet(self) -> int:
        """Members that it could start and has no agents for."""
        return max(0, self.wants - self.free)

    @property
    def missing(self) -> int:
        """How many agents it needs to start something more."""
        if self.free < self.claim.lacking:
            return 1
        return self.claim.unit - (self.free - self.claim.lacking) % self.claim.unit

    @property
    def surplus(self) -> int:
        """Agents that it cannot start anything on."""
        useful = min(self.wants, self.free)
        if not self.reserves and useful > self.claim.lacking:
            useful -= (useful - self.claim.lacking) % self.claim.unit
        return self.free - useful

    @property
    def in_use(self) -> int:
        """Agents that count as used."""
        return self.busy + self.free - self.surplus

    def order(self) -> tuple[int, bool, float]:
        """The run with the lowest order is next."""
        return -self.share.priority, not self.reserves, self.share.after(self.in_use + self.missing)


class _Contested:
    """Agents that may change hands, by the run that they are of."""

    def __init__(self) -> None:
        self._by_run: dict[RunId | None, dict[AgentId, AgentState]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, agent: AgentState) -> bool:
        return agent.id in self._by_run.get(agent.run, ())

    def add(self, agents: Iterable[AgentState]) -> None:
        for agent in agents:
            self._by_run.setdefault(agent.run, {})[agent.id] = agent
            self._count += 1

    def remove(self, agents: Iterable[AgentState]) -> None:
        for agent in agents:
            del self._by_run[agent.run][agent.id]
            self._count -= 1

    def count_of(self, run: RunId) -> int:
        """How many of them are of `run`."""
        return len(self._by_run.get(run, ()))

    def first(self, contender: Contender, count: int) -> list[AgentState]:
        """Up to `count` for the run: its own first, then such as have its code, then idle ones."""
        fit = list(islice(filter(contender.accepts, self._by_run.get(contender.run, {}).values()), count))
        if len(fit) == count:
            return fit
        foreign_agents = (
            agent for run, agents in self._by_run.items() if run != contender.run for agent in agents.values()
        )
        # Not all: with 10,000 agents, a sort of them for each grant would hold up the coordinator for minutes.
        candidates = list(islice(filter(contender.accepts, foreign_agents), count - len(fit) + LOOKED_AT))
        candidates.sort(key=lambda agent: (contender.run not in agent.codes, agent.status is not AgentStatus.IDLE))
        return [*fit, *candidates[: count - len(fit)]]


class Allocator:
    """Decides which run gets an agent. Its methods cost nothing while a pool has one run."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self._shares: dict[RunId, RunShare] = {}
        self._reservation = Reservation()
        self._soft_since: dict[RunId, float] = {}
        """Since when agents of a run wait for its sampler."""
        self._contenders: dict[RunId, Contender] = {}
        self._unsettled = True
        """Agents may change hands without an event of their own: of no run, beyond need, or for a higher priority."""

    def open(self, run: RunId, allotment: Allotment, at: float) -> None:
        """A run starts."""
        self._unsettled = True
        self._shares[run] = RunShare(run, allotment.weight, allotment.priority, at)

    def close(self, run: RunId) -> None:
        """A run is over."""
        self._unsettled = True
        del self._shares[run]
        self._contenders.pop(run, None)
        self._soft_since.pop(run, None)
        self._reservation.formed(run)

    def joined(self) -> None:
        """An agent has joined, and is of no run."""
        self._unsettled = True

    def share(self, run: RunId) -> RunShare:
        """What a run that is on has used."""
        return self._shares[run]

    def postpone(self, seconds: float) -> None:
        """The coordinator was suspended for `seconds`, in which no run has used anything."""
        self._reservation.postpone(seconds)
        for share in self._shares.values():
            share.since += seconds

    def orphans(self) -> list[AgentState]:
        """Agents without a member that are of no run, or of one that is over."""
        return [
            agent
            for run in self._agents.runs_with_free()
            if run not in self._shares
            for agent in self._agents.free(run)
        ]

    def refresh(self, run: RunId, claim: Claim, accepts: Callable[[AgentState], bool], at: float) -> None:
        """An event has concerned the run; `accepts` is whether it could use an agent."""
        share = self._shares[run]
        share.count(at)
        claim = self._hard(run, claim, at)
        free, busy = self._agents.free_count(run), self._agents.busy_count(run)
        contender = self._contenders.get(run)
        if contender is None:
            self._contenders[run] = Contender(share, claim, free, busy, accepts, claim.members)
        else:
            contender.claim = claim
            contender.wants = claim.members
            contender.free = free
            contender.busy = busy

    @property
    def contenders(self) -> list[Contender]:
        """The runs, as they stand since the newest grants."""
        return list(self._contenders.values())

    def _hard(self, run: RunId, claim: Claim, at: float) -> Claim:
        """The claim without cases that the sampler takes long for, as long as idle agents wait for them."""
        waits = claim.coming and not claim.ready and self._agents.idle_count(run)
        if not waits:
            self._soft_since.pop(run, None)
            return claim
        since = self._soft_since.setdefault(run, at)
        return claim if at < since + SOFT_S else Claim(claim.unit, claim.ready, 0, claim.lacking)

    def grants(self, refreshed: Iterable[RunId], at: float) -> list[tuple[AgentState, RunId]]:
        """The agents that change hands, with their next run. `refreshed`: the runs that have changed."""
        released = self._agents.take_released()
        for agent in released:
            if agent.run is not None and (share := self._shares.get(agent.run)) is not None:
                share.exempt = max(0, share.exempt - 1)
        free_agents = [*released, *self._agents.take_arrived()]
        changed = [self._contenders[run] for run in refreshed]
        is_wanted = any(contender.unmet for contender in changed) or any(
            share.hungry for share in self._shares.values()
        )
        moves: list[tuple[AgentState, RunId]] | None = []
        if is_wanted:
            # Nearly all events are of the quiet kind; a look at all that could change hands cost a quarter of the
            # coordinator.
            moves = self._quiet_grants(free_agents, changed, at)
        if moves is None:
            return self._all_grants(free_agents, at)
        for contender in changed:
            self._settle(contender, at)
        return moves

    def _quiet_grants(
        self, free_agents: list[AgentState], changed: list[Contender], at: float
    ) -> list[tuple[AgentState, RunId]] | None:
        """As `grants`, where nothing but one agent that has become free can change hands; None where more can."""
        if self._unsettled or self._reservation.run is not None or len(free_agents) > 1:
            return None
        if any(contender.share.is_new for contender in changed):
            return None
        if free_agents:
            return self._next_of(free_agents[0], changed, at)
        return None if any(contender.surplus for contender in changed) else []

    def _next_of(self, agent: AgentState, changed: list[Contender], at: float) -> list[tuple[AgentState, RunId]] | None:
        """As `grants`, for one agent that has become free; None where more than this agent could change hands."""
        owner = None if agent.run is None else self._contenders.get(agent.run)
        if owner is None:
            return None
        owner.free -= 1
        best = None if any(contender.surplus for contender in changed) else self._most_owed(at)
        is_best = best is not None and (best is owner or best.accepts(agent))
        if best is None or best.missing > 1 or not is_best:
            owner.free += 1
            return None
        best.free += 1
        if best is owner:
            return []
        changed.append(best)
        return [(agent, best.run)]

    def _most_owed(self, at: float) -> Contender | None:
        """The run that could use more, and is furthest behind; all are of one priority, and have no surplus."""
        most_owed: Contender | None = None
        lowest = math.inf
        for contender in self._contenders.values():
            if contender.wants <= contender.free:
                continue
            share = contender.share
            missing = 1 if contender.claim.unit == 1 else contender.missing
            # Without a surplus, all that it has is in use: this is `order`.
            soon_s = (contender.busy + contender.free + missing) * AHEAD_S
            elapsed_s = at - share.since
            rate = share.in_use - share.exempt
            used_s = share.used_s + rate * elapsed_s if rate > 0 else share.used_s
            virtual_s = (used_s + soon_s) / share.weight
            if virtual_s < lowest:
                lowest = virtual_s
                most_owed = contender
        return most_owed

    def _all_grants(self, free_agents: list[AgentState], at: float) -> list[tuple[AgentState, RunId]]:
        contenders = self.contenders
        self._reservation.expire(at)
        for contender in contenders:
            contender.share.count(at)
            contender.reserves = self._reservation.run == contender.run and self._can_form(contender)
            if self._reservation.run == contender.run and not contender.reserves:
                self._reservation.formed(contender.run)
        moves: list[tuple[AgentState, RunId]] = []
        if any(contender.unmet for contender in contenders):
            moves = self._contest(contenders, self._contested(contenders, free_agents), at)
        for contender in contenders:
            self._settle(contender, at)
        priorities = {contender.share.priority for contender in contenders}
        surplus = any(contender.surplus for contender in contenders)
        self._unsettled = len(priorities) > 1 or surplus or self._has_orphans()
        return moves

    def _settle(self, contender: Contender, at: float) -> None:
        """Note what the run uses from now on, and whether it could use more."""
        share = contender.share
        share.count(at)
        # An agent that loads code, or the frameworks, is of no use yet: a run once paid for the start of a pool.
        loading = self._agents.free_count(contender.run) - self._agents.idle_count(contender.run)
        share.in_use = max(contender.busy, contender.in_use - loading)
        is_hungry = contender.unmet > 0
        if is_hungry and not share.hungry:
            let_in(share, self._shares.values(), len(self._agents))
        share.hungry = is_hungry
        share.is_new = False
        if contender.free >= contender.claim.unit or not contender.wants:
            self._reservation.formed(contender.run)

    def _has_orphans(self) -> bool:
        return any(run not in self._shares for run in self._agents.runs_with_free())

    def _contested(self, contenders: Sequence[Contender], free_agents: Iterable[AgentState]) -> _Contested:
        """The agents that may change hands. Those that a run has are none of its own while they are contested."""
        contested = _Contested()
        contested.add(self.orphans() if self._has_orphans() else ())
        by_run: dict[RunId | None, Contender] = {contender.run: contender for contender in contenders}
        highest = max((contender.share.priority for contender in contenders if contender.unmet), default=None)
        # What is not in use yet is shared with a run that has just come, as if both had come at the same time.
        newest = max((contender.share.priority for contender in contenders if contender.share.is_new), default=None)
        shortfall = sum(contender.unmet for contender in contenders)
        for contender in contenders:
            movable: list[AgentState] = []
            priority = contender.share.priority
            if highest is not None and priority < highest:
                movable = self._agents.free(contender.run)
            elif newest is not None and priority <= newest and not contender.reserves:
                movable = self._shared_with_newest(contender, shortfall)
            elif contender.surplus and shortfall:
                # The newest: the longest idle ones are the next that it would use.
                newest_free = self._agents.newest_free(contender.run)
                movable = list(islice(newest_free, min(contender.surplus, shortfall)))
            contested.add(movable)
            contender.free -= len(movable)
        for agent in free_agents:
            owner = by_run.get(agent.run)
            if owner is not None and agent not in contested and not owner.reserves:
                contested.add([agent])
                owner.free -= 1
        return contested

    def _shared_with_newest(self, contender: Contender, shortfall: int) -> list[AgentState]:
        """The agents of a run that it shares at once with one that has just come."""
        # An agent that loads its code is shared once it has that. Where it moved at once, each of twenty calls that
        # start together took nearly all agents from the others while these loaded: 80,000 moves of 10,000 agents.
        idle_agents: list[AgentState] = []
        loading_agents: list[AgentState] = []
        for agent in self._agents.free(contender.run):
            if agent.status is AgentStatus.PREPARING:
                self._agents.share_when_ready(agent)
                loading_agents.append(agent)
            else:
                idle_agents.append(agent)
        useless = min(contender.surplus - len(idle_agents), shortfall)
        return [*idle_agents, *islice(reversed(loading_agents), max(0, useless))]

    def _contest(
        self, contenders: Sequence[Contender], contested: _Contested, at: float
    ) -> list[tuple[AgentState, RunId]]:
        moves: list[tuple[AgentState, RunId]] = []
        hungry = [contender for contender in contenders if contender.unmet]
        while contested and hungry:
            turn = min(hungry, key=Contender.order)
            portion = len(contested) // (PORTIONS * len(hungry))
            missing = turn.missing + min(portion, turn.unmet) // turn.claim.unit * turn.claim.unit
            fit = contested.first(turn, missing)
            # What it has so far waits for the others, if these can come at all.
            if len(fit) < turn.missing and not (fit and self._reserve(turn, len(fit), at)):
                hungry.remove(turn)
                continue
            moves += [(agent, turn.run) for agent in fit if agent.run != turn.run]
            contested.remove(fit)
            turn.free += len(fit)
            if not turn.unmet or len(fit) < missing:
                hungry.remove(turn)
        for contender in contenders:
            contender.free += contested.count_of(contender.run)
        return moves

    def _can_form(self, contender: Contender) -> bool:
        """Whether there are as many agents as a gang of the run needs: some may be lost, or of no use to it."""
        return self._agents.has(contender.claim.unit, contender.accepts)

    def _reserve(self, contender: Contender, arrived: int, at: float) -> bool:
        """Whether the run may keep `arrived` agents for a gang that is not complete."""
        if not self._reservation.may_hold(contender.run, at):
            return False
        if not self._can_form(contender):
            return False
        contender.reserves = True
        self._reservation.hold(contender.run, contender.free + arrived, at)
        return True


class Reservation(Struct, gc=False):
    """Which run may keep agents free until a whole gang can start, and until when.

    Only one run at a time has a reservation: two that each had some of the agents would wait for each other. Some gangs
    can never form, such as beside a trial of days that has the agents; so a reservation that gets no agent for a while
    is given up for as long, and the next one lasts twice as long. A gang that can form thus does so at last, and one
    that cannot costs the others at most half of what it would hold.
    """

    run: RunId | None = None
    agents: int = 0
    """How many it had when it got the newest one."""
    until: float = 0.0
    barred: dict[RunId, float] = {}
    """Runs that have given up a reservation, and until when they get no other one."""
    hold_s: dict[RunId, float] = {}
    """How long the next one of each of them lasts."""

    def may_hold(self, run: RunId, at: float) -> bool:
        """Whether agents may be kept free for `run`."""
        return self.run == run or (self.run is None and at >= self.barred.get(run, at))

    def hold(self, run: RunId, agents: int, at: float) -> None:
        """`agents` are there for the gang of `run`, and it needs more."""
        if self.run == run and agents <= self.agents:
            return
        self.run = run
        self.agents = agents
        self.until = at + self.hold_s.get(run, FIRST_HOLD_S)

    def formed(self, run: RunId) -> None:
        """The gang of `run` has its agents, or needs none."""
        if self.run == run:
            self.run = None
        self.hold_s.pop(run, None)
        self.barred.pop(run, None)

    def expire(self, at: float) -> None:
        """Give the reservation up if it has been of no use."""
        if self.run is None or at < self.until:
            return
        lasted = self.hold_s.get(self.run, FIRST_HOLD_S)
        self.hold_s[self.run] = 2 * lasted
        self.barred[self.run] = at + lasted
        self.run = None

    def postpone(self, seconds: float) -> None:
        """The coordinator was suspended for `seconds`."""
        self.until += seconds
        self.barred = {run: until + seconds for run, until in self.barred.items()}
