"""Restarts of single members: which ones, on which agents, and until when the gang does without them.

A worker or an evaluator of a gang with parameter servers meets the others at these servers alone, or serves the chief,
where TensorFlow's coordinator waits for a lost one. When it is lost it restarts by itself, at the address that the
others know it by, while they train on. So does a parameter server that gets its variables again from the chief; in its
gang a lost member may come back on any host, and the others learn where. The chief, and a parameter server of
TensorFlow, are lost with the whole gang.

A ring heals where each of its other members has declared that it can: it is within a call that catches the broken
collective. These keep their processes and what they hold, and leave the ring. The lost member, the chief too, gets its
next process on any host, and then all form the next ring, in which those that train give it their state. The gang
trains on when all have reported that. At the next loss before that, of another member or of a next process, they leave
that ring too, and form one more: as long as half of the members have kept their processes, for each of these has a
state that the others can come to. A next process that has a place in the ring which broke starts again. Whatever else
ends a member ends the gang.

Where no agent is idle for the next process, and the run has `min_workers`, the others do not wait for one: if all of
them can divide the rest of their data, they form the next ring without the lost member. Its place stays vacant, and
they keep their ranks, until the gang grows: then another one continues with all members. The place of the chief is
never vacant, for it saves and reports.
"""

from msgspec.structs import replace

from sparktrain.base.ids import CHIEF, Rank, TrialId
from sparktrain.config.gang_spec import Role
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.deadlines import Late, stuck
from sparktrain.state.gangs import timeouts
from sparktrain.state.gangs.gang import Gang, GangStatus
from sparktrain.state.losses.absence import Absence, LaterLoss
from sparktrain.state.losses.memory_tier import MemoryTier
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.state.restart import Decision
from sparktrain.state.seats.gang_facts import FactSources, GangFacts
from sparktrain.state.seats.policies import lost
from sparktrain.state.seats.seat import SeatState
from sparktrain.state.seats.seat_change import SeatChange

KINDS = frozenset(
    {
        FailureKind.LOST,
        FailureKind.SIGNAL,
        FailureKind.KILLED,
        FailureKind.MEMORY,
        FailureKind.EXIT,
        FailureKind.HANG,
    }
)
"""Failures of one process. Others are the user's, follow from another member's, or concern what all members share."""

Commands = list[do.Command]


class MemberRestarts:
    """Decides about the single members of one run's gangs, on the agents of the pool."""

    def __init__(self, run: FactSources, memory: MemoryTier) -> None:
        self._run = run
        self._sweep = run.sweep
        self._agents = run.agents
        self._memory = memory
        self._has_servers = Role.PS in run.sweep.limits.roles
        """Members meet at parameter servers, or serve their chief, and train on without a lost one."""
        self._moves = run.sweep.limits.moves_lost_members
        self._wait_s = timeouts.REPLACEMENT_S if self._moves else timeouts.AGENT_S
        self._waiting: dict[TrialId, None] = {}
        """Trials with a gang that may have a member without an agent, in the order of their losses: each event looks
        at them."""

    def lost(self, gang: Gang, rank: Rank, failure: Failure | None, at: float) -> Commands | None:
        """Member `rank` is gone; what follows where it restarts alone.

        None where it does not: it has ended, and perhaps the gang with it.
        """
        if failure is None or gang.stop.has_started:
            return None
        earlier = gang.absences.by_rank.get(rank)
        is_ending = earlier is not None and earlier.state is SeatState.LEAVING
        if not is_ending and not self._restarts(gang, rank, failure, at):
            return None
        absence = Absence(gang.located(failure, rank), at, SeatState.EMPTY, at + self._wait_s)
        if earlier is not None:
            # The first loss is the cause, and its cost counts from then.
            loss = LaterLoss(absence.failure, at - earlier.since, earlier.incarnation)
            absence = replace(
                absence,
                failure=earlier.failure,
                since=earlier.since,
                ring=earlier.ring,
                later=(*earlier.later, loss) if earlier.losses and not is_ending else earlier.later,
                step=earlier.step,
                called=earlier.called,
            )
        gang.depart(rank, absence)
        self._waiting[gang.trial] = None
        return [] if self._has_servers or is_ending else self._break_ring(gang, at)

    def _break_ring(self, gang: Gang, at: float) -> Commands:
        """Have the others leave the ring, and keep what they hold: blocked in a collective, they would wait for long"""
        # A number for each ring: values of the rendezvous before, and reports of members that join too late, would
        # count for the next one.
        absences = gang.absences
        absences.newest_ring += 1
        away = absences.by_rank
        commands: Commands = []
        for agent, member in gang.live():
            if member.rank not in away:
                commands.append(do.Send(agent, m.Seating(member=member, ring=absences.newest_ring)))
        for rank, absence in away.items():
            absence.ring = absences.newest_ring
            if absence.state is SeatState.VACANT:
                # An agent may be idle by now.
                absence.reserved = False
                absence.state = SeatState.EMPTY
                absence.by = at + self._wait_s
                self._waiting[gang.trial] = None
            # It is on its way into the ring that is broken, and has no state to keep.
            elif absence.reserved:
                absence.reserved = False
                absence.state = SeatState.LEAVING
                absence.by = at + timeouts.END_S
                commands.append(do.Send(gang.agents[rank], m.StopMember(gang.member(rank), 0.0)))
        return commands

    def hangs(self, gang: Gang, late: Late) -> Commands:
        """The end of a member that hangs while all others train; nothing where the whole gang has to restart."""
        failure, at, rank = late
        # When several members hang, they wait for each other: no single one is the cause.
        if not self._restarts(gang, rank, failure, at) or len(stuck(gang, self._sweep.spec, at)) > 1:
            return []
        gang.absences.by_rank[rank] = Absence(gang.located(failure, rank), at, SeatState.LEAVING, at + timeouts.END_S)
        return [do.Send(gang.agents[rank], m.StopMember(gang.member(rank), timeouts.KILL_GRACE_S))]

    def _restarts(self, gang: Gang, rank: Rank, failure: Failure, at: float) -> bool:
        forms_or_stops = gang.status is not GangStatus.RUNNING or gang.stop.has_started
        # What the next process of a ring sees of another loss comes before the news of that.
        is_next = rank in gang.absences.by_rank and failure.kind.follows and not self._has_servers
        if forms_or_stops or gang.fault.first is not None or not (failure.kind in KINDS or is_next):
            return False
        if not (self._trains_without(gang, rank) if self._has_servers else self._heals(gang, rank, failure, at)):
            return False
        return self._sweep.decide(self._sweep.trials[gang.trial], gang, failure) is Decision.RETRY

    def _trains_without(self, gang: Gang, rank: Rank) -> bool:
        """Whether the other members train on beside parameter servers while `rank` is away."""
        if not self._sweep.limits.restarts_members or (gang.places[rank].role is Role.PS and not self._moves):
            return False
        return rank != CHIEF and rank not in gang.absences.by_rank and CHIEF not in gang.attendance.ended

    def _heals(self, gang: Gang, rank: Rank, failure: Failure, at: float) -> bool:
        """Whether the other members keep their processes, and form the next ring with the next process of `rank`."""
        away = {rank, *gang.absences.by_rank}
        members = {*gang.ranks, *away}
        survivors = members - away
        if not self._sweep.limits.heals or not survivors <= gang.attendance.heals:
            return False
        if not survivors or 2 * len(survivors) < len(members):
            return False
        # Members that pause for a larger gang are in no collective. Where one hangs all others wait for it: no silence
        # shows which one it is.
        is_whole = not gang.attendance.ended and not gang.stop.pauses(at)
        if not is_whole or failure.kind is FailureKind.HANG:
            return False
        # A process that joins a ring with vacant places would take its share for that of another rank.
        least = self._sweep.spec.gang.min_workers or 0
        shrinks = rank != CHIEF and survivors <= gang.attendance.shrinks and len(survivors) >= least
        return shrinks or not gang.absences.vacant

    # ---- the next process

    def place(self, at: float) -> Commands:
        """Give the members that wait for an agent one, or have the others continue; before other gangs form."""
        commands: Commands = []
        for trial in list(self._waiting):
            gang = self._sweep.gangs.get(trial)
            if gang is None or not gang.in_state(SeatState.EMPTY):
                del self._waiting[trial]
                continue
            while (change := lost(GangFacts(self._run, gang, at))) is not None:
                commands += self._shrink(gang, at) if change.agent is None else self._place(gang, change, at)
        return commands

    def _shrink(self, gang: Gang, at: float) -> Commands:
        """Have the members that are left form a ring at once, without those that no agent has."""
        for rank in gang.in_state(SeatState.EMPTY):
            gang.vacate(rank, at + self._sweep.limits.join_timeout_s)
        return form_ring(gang)

    def _place(self, gang: Gang, change: SeatChange, at: float) -> Commands:
        limits = self._sweep.limits
        rank = change.rank
        agent = change.agent
        assert agent is not None
        member = gang.hand_to(rank, agent.id, at + limits.join_timeout_s)
        self._agents.occupy(agent, member)
        self._memory.held.lost(agent.id)  # it drops what its next member does not resume from
        ring = gang.absences.by_rank[rank].ring
        place = gang.places[rank]
        if ring or agent.machine != place.machine:
            gang.move(rank, replace(place, host=agent.host, address=agent.address, port=0))
        trial = self._sweep.trials[gang.trial]
        start = do.PlaceMember(
            agent=agent.id,
            member=member,
            size=gang.size,
            params=trial.params,
            checkpoint=trial.checkpoints.newest,
            port=gang.places[rank].port,
            ring=ring,
            may_grow=gang.size < limits.size,
        )
        return [start]

    def reserved(self, gang: Gang, rank: Rank, port: int) -> Commands | None:
        """The member has its port again, and gets the addresses; the others learn where it is if it has moved, or form
        the next ring with it.

        None for a member that does not restart alone.
        """
        member = gang.member(rank)
        absence = gang.absences.by_rank.get(rank)
        if absence is None:
            return None
        if gang.stop.by is not None or absence.reserved or absence.state is not SeatState.JOINING:
            return []
        place = gang.places[rank]
        moved = not place.port
        # The others dial the port that they know, and learn of no other where members cannot move.
        if not moved and port != place.port:
            return [do.Refused(gang.agents[rank], f"{member} holds port {port}, the others know another one")]
        absence.reserved = True
        gang.move(rank, replace(place, port=port))
        # The others have no port to reserve: a ring over Gloo takes ports of its own.
        if absence.ring:
            return form_ring(gang)
        waiting = {peer for peer, entry in gang.absences.by_rank.items() if not entry.reserved}
        listeners = {Rank(peer) for peer in range(gang.size)} - waiting if moved else {rank}
        return [do.Send(agent, seating) for agent, seating in gang.seatings() if seating.member.rank in listeners]

    def healed(self, gang: Gang, at: float) -> Commands:
        """The gang is healed, and its members train on, once all have joined the next ring, with equal state."""
        absences = gang.absences
        away = absences.by_rank
        # The end of a member is that of the gang, also where all had joined the ring before.
        formed = bool(away) and not gang.attendance.ended and all(absence.reserved for absence in away.values())
        # Not when the next process enters the function: until its state equals that of the others, it has none to keep.
        if not formed or len(gang.joined) < len(gang.ranks):
            return []
        absences.handovers.changed_at = at
        absences.ring = absences.newest_ring
        for rank, absence in list(away.items()):
            over = gang.continue_without(rank, at) if absence.state is SeatState.VACANT else gang.heal(rank, at)
            self._sweep.returned(gang, rank, over, at)
        # None trains on before: the next loss, which another agent reports, could come before the last of these
        # reports, and a next process that has trained already would count as one without a state.
        return [do.Send(agent, seating) for agent, seating in gang.seatings(joined=True)]

    # ---- members that do not return

    def outcome(self, gang: Gang, rank: Rank, outcome: Outcome) -> Outcome:
        """The outcome of a member that ends, before the gang takes it: that of one which was away has both causes.

        The end of any member of a ring that heals is that of the gang.
        """
        if gang.stop.by is not None:
            return outcome
        absence = gang.absences.by_rank.get(rank)
        if absence is not None and outcome.failure is not None:
            return replace(outcome, failure=absence.failed(outcome.failure.summary))
        healing = gang.absences.healing
        if healing is not None:
            lost_rank, absence = healing
            why = "returned" if outcome.failure is None else f"ended: {outcome.failure.summary}"
            gang.fail(absence.failed(f"rank {rank} {why}"), absence.since, lost_rank)
        return outcome

    def needed(self, gang: Gang, rank: Rank, at: float) -> None:
        """Member `rank` has ended: note where the gang cannot continue with members away."""
        if gang.fault.cause is not None or gang.accomplished:
            return
        away = next(((absent_rank, absence.failure) for absent_rank, absence in gang.absences.by_rank.items()), None)
        blocker = away if gang.fault.follower is not None else gang.needs_chief() if rank == CHIEF else None
        if blocker is not None:
            blocking_rank, failure = blocker
            absence = gang.absences.by_rank.get(blocking_rank)
            gang.fail(failure, at if absence is None else absence.since, blocking_rank)

    def overdue(self, gang: Gang, at: float) -> Rank | None:
        """Note that the gang fails where a member is away for too long; returns one that hangs and has not ended."""
        for rank, absence in gang.absences.by_rank.items():
            late = at >= absence.by
            why = ""
            if absence.state is SeatState.EMPTY and (late or self._sweep.stop is not None):
                where = "" if self._moves else f" on {gang.places[rank].host}"
                why = f"no agent{where} was idle within {self._wait_s:g} s" if late else "the run stops"
            elif absence.state is SeatState.JOINING and late:
                why = f"it did not train within {self._sweep.limits.join_timeout_s:g} s"
            elif absence.state is SeatState.VACANT and late:
                why = f"the others did not form a ring without it within {self._sweep.limits.join_timeout_s:g} s"
            if why:
                gang.fail(absence.failed(why), absence.since, rank)
        hanging = gang.in_state(SeatState.LEAVING)
        return next((rank for rank in hanging if at >= gang.absences.by_rank[rank].by), None)


def form_ring(gang: Gang) -> Commands:
    """The members form the newest ring, once all that have a place in it are ready."""
    if not all(absence.reserved for absence in gang.absences.by_rank.values()):
        return []
    return [do.Send(agent, seating) for agent, seating in gang.seatings()]
