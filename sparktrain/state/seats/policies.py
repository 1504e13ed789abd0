"""Which change of its seats a gang needs that trains: each policy suggests one, where none is under way. Pure.

A ring that can change between two steps does so, where an agent is idle: the next process of a member is prepared
there, and takes the place after a step of all, so that none is repeated. Another gang pauses after the same step on
all members, in memory where that outlasts the change, else at its next checkpoint; then it ends, and the next one
resumes there.
"""

from collections.abc import Callable

from msgspec.structs import replace

from sparktrain.base.ids import CHIEF, Rank
from sparktrain.config.gang_spec import Role
from sparktrain.state.agents import AgentState
from sparktrain.state.gangs import timeouts
from sparktrain.state.losses.handover import MOST_STANDBY_FAILURES
from sparktrain.state.placement import gang_size, most_on_host
from sparktrain.state.seats.gang_facts import GangFacts, is_steady
from sparktrain.state.seats.seat import SeatState
from sparktrain.state.seats.seat_change import ChangeReason, SeatChange, StateSource

Policy = Callable[[GangFacts], SeatChange | None]


def lost(facts: GangFacts) -> SeatChange | None:
    """The next process of a lost member starts; where no agent is idle, the others form a ring without the member."""
    gang = facts.gang
    empty = gang.in_state(SeatState.EMPTY)
    if not empty or facts.sweep.stop is not None or gang.stop.has_started:
        return None
    shrinks = can_shrink(facts) and (gang.absences.vacant or not facts.idle)
    # A process that joins a ring with vacant seats would take its share for that of another rank.
    waiting = () if shrinks or gang.absences.vacant else empty
    agents = {rank: agent for rank in waiting if (agent := _agent_for(facts, rank)) is not None}
    if not shrinks and not agents:
        return None
    rank = next(iter(agents), empty[0])
    text = gang.absences.by_rank[rank].failure.summary
    return SeatChange(reason=ChangeReason.LOST, text=text, rank=rank, agent=agents.get(rank))


def can_shrink(facts: GangFacts) -> bool:
    """Whether the members that are left of a ring can continue in one of their own, without those that are away."""
    away = facts.gang.absences.by_rank
    remaining = set(facts.gang.ranks) - away.keys()
    least = facts.sweep.spec.gang.min_workers
    if least is None or len(remaining) < least or CHIEF not in remaining:
        return False
    # A next process that starts already has a place in the ring, and counts on one of this size.
    waits = all(absence.ring and absence.state is SeatState.EMPTY for absence in away.values())
    return waits and remaining <= facts.gang.attendance.shrinks


def _agent_for(facts: GangFacts, rank: Rank) -> AgentState | None:
    """An idle agent on the member's host, its own where that lives; on any host where the member may move.

    One with GPUs for a worker if there is any, and one without for a parameter server. With `spread`, one on the host
    with the fewest members.
    """
    gang = facts.gang
    place = gang.places[rank]
    sign = -1 if place.role is Role.PS else 1
    moves = facts.sweep.limits.moves_lost_members
    spreads = facts.sweep.spec.gang.spread and moves
    near = [agent for agent in facts.idle if agent.machine == place.machine]

    def order(agent: AgentState) -> tuple[bool, int, int]:
        return agent.id == gang.agents[rank], -facts.on_host[agent.host] if spreads else 0, sign * agent.gpus

    return max(facts.idle if spreads or (moves and not near) else near, key=order, default=None)


def drained(facts: GangFacts) -> SeatChange | None:
    """A member leaves a drained agent; where the ring cannot change, the gang ends."""
    gang = facts.gang
    if gang.handovers.current is not None or not facts.drained or not is_steady(gang, facts.sweep):
        return None
    move = _prepared(facts, leaving(facts))
    if move is not None or gang.stop.pauses(facts.at) or _may_soon_move(facts):
        return move
    # Without a copy that outlasts the drain the chief is asked for a checkpoint, where all have to leave. Else the gang
    # ends at its next one, if any, or moves once its members have taken a snapshot in memory.
    if not facts.outlives_drain and len(facts.drained) < len(gang.ranks):
        return None
    return leaving(facts, StateSource.MEMORY if facts.outlives_drain else StateSource.STORE)


def leaving(facts: GangFacts, source: StateSource = StateSource.SURVIVORS) -> SeatChange:
    """The change for the first member on a drained agent."""
    rank = facts.drained[0]
    notice = facts.agents[rank].notice
    text = f"drained: {notice}" if notice else "drained"
    return SeatChange(reason=ChangeReason.DRAINED, source=source, text=text, rank=rank)


def crowded(facts: GangFacts) -> SeatChange | None:
    """A member moves off a host that has more than half of them, where another host has room.

    A ring heals as long as half of its members keep their processes: that host is the one that the gang cannot lose.
    After other losses the members that were on several hosts may be on one.
    """
    sweep = facts.sweep
    gang = facts.gang
    on_host = facts.on_host
    most = most_on_host(sweep, gang.size)
    host = max(on_host, key=lambda name: on_host[name], default=None)
    changed_at = gang.handovers.changed_at or gang.attendance.running_since
    if most is None or host is None or on_host[host] <= most:
        return None
    if changed_at is None or facts.at < changed_at + timeouts.COOLDOWN_S:
        return None
    # The last one: the chief moves only alone.
    rank = max(rank for rank, agent in facts.agents.items() if agent.host == host)
    room = [agent for agent in facts.idle if on_host[agent.host] + 1 < on_host[host]] if facts.may_move(rank) else []
    if not room:
        return None
    agent = min(room, key=lambda candidate: (on_host[candidate.host], -candidate.gpus))
    text = f"spread: its host had {on_host[host]} of {gang.size} members"
    return SeatChange(reason=ChangeReason.CROWDED, text=text, rank=rank, agent=agent)


def vacant(facts: GangFacts) -> SeatChange | None:
    """A gang that continues smaller grows, once agents are there that no trial in the queue waits for."""
    gang = facts.gang
    sweep = facts.sweep
    full_size = sweep.limits.size
    members = len(gang.ranks)
    running_since = gang.attendance.running_since
    changes = gang.handovers.current is not None or gang.stop.pauses(facts.at)
    if members >= full_size or running_since is None or changes or not is_steady(gang, sweep):
        return None
    # Not soon after a loss, when the next gang would wait for the agents of a whole one.
    changed_at = max(running_since, gang.absences.shrunk_at or running_since)
    if facts.at < changed_at + timeouts.COOLDOWN_S or not (facts.trains and facts.idle):
        return None
    size = min(full_size, members + len(facts.idle))
    text = f"grows to {size} members: agents are there again"
    change = SeatChange(reason=ChangeReason.VACANT, text=text, rank=next(iter(gang.absences.vacant), CHIEF))
    joins = _prepared(facts, change) if gang.absences.vacant else None
    next_size = gang_size(sweep, sweep.trials[gang.trial], facts.run.agents, facts.at)
    if joins is not None or facts.copy is None or next_size > members + len(facts.idle):
        return joins
    return replace(change, source=StateSource.MEMORY, rank=CHIEF)


def lacks_standby(facts: GangFacts) -> SeatChange | None:
    """A process is prepared for the loss of a member, where no idle agent is for something else.

    For a rank with the fewest of them; the chief last, for some callbacks allow no other process in its place.
    """
    gang = facts.gang
    handovers = gang.handovers
    if len(handovers.standbys) >= facts.sweep.spec.gang.standby or not facts.heals or handovers.current is not None:
        return None
    moves = len(facts.agents) < gang.size or facts.drained
    has_failed = handovers.standby_failures >= MOST_STANDBY_FAILURES
    if moves or has_failed or gang.size < facts.sweep.limits.size or not facts.idle:
        return None
    ranks = [standby.member.rank for standby in handovers.standbys]
    rank = min(map(Rank, range(gang.size)), key=lambda number: (ranks.count(number), number == CHIEF))
    return SeatChange(reason=ChangeReason.STANDBY, text="standby", rank=rank, agent=facts.idle[0])


def _prepared(facts: GangFacts, change: SeatChange) -> SeatChange | None:
    """The change with the next process of its member: one that waits, or one on an idle agent."""
    if not facts.may_move(change.rank):
        return None
    if facts.gang.handovers.ready_for(change.rank) is not None:
        return change
    agent = max(facts.idle, key=lambda candidate: candidate.gpus, default=None)
    return None if agent is None else replace(change, agent=agent)


def _may_soon_move(facts: GangFacts) -> bool:
    """The ring can soon change, and all members train until then."""
    # Should the agents be lost before one has started, the ring heals if half of its members keep their processes.
    heals = 2 * len(facts.drained) <= len(facts.gang.ranks)
    has_agent = bool(facts.idle or (heals and facts.starting))
    return has_agent and (_is_settling(facts) or facts.may_move(facts.drained[0]))


def _is_settling(facts: GangFacts) -> bool:
    """The members have changed their ring just now, and can soon do so again."""
    handovers = facts.gang.handovers
    if handovers.changed_at is None or facts.at >= handovers.changed_at + timeouts.SETTLE_S:
        return False
    # Those that are not new declare it still; a loop that keeps its size never does.
    able = 0 < len(facts.gang.attendance.moves) < len(facts.gang.ranks)
    return able and not handovers.failures
