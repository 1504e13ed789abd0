"""Restarts of single members: which ones, on which agents, and until when the gang trains without them.

A worker or an evaluator of a gang with parameter servers meets the others at these servers alone, or serves the chief,
where TensorFlow's coordinator waits for a lost one. When it is lost it restarts by itself, at the address that the
others know it by, while they train on. So does a parameter server that gets its variables again from the chief; in its
gang a lost member may come back on any host, and the others learn where. What the gang cannot do without is lost with
the whole gang: the chief, a parameter server of TensorFlow, and any member of a gang with a ring.
"""

from msgspec.structs import replace

from sparktrain.config.gang_spec import Role
from sparktrain.ids import CHIEF, Rank
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.agents import Agents, AgentState
from sparktrain.state.deadlines import Late, stuck
from sparktrain.state.gangs.gang import Gang, GangStatus
from sparktrain.state.losses.absence import Absence, AbsenceStage
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.state.prospects import idle
from sparktrain.state.restart import Decision
from sparktrain.state.sweep import Sweep

AGENT_TIMEOUT_S = 5.0
"""How long a lost member waits for an agent on its host: for that of an executor which is there already, or rejoins."""
MOVE_TIMEOUT_S = 30.0
"""How long one that may move waits for any agent: a cluster takes about so long to replace an executor."""
END_TIMEOUT_S = 15.0
"""Until a member that hangs must have ended; then its agent counts as lost."""

KINDS = frozenset({FailureKind.LOST, FailureKind.SIGNAL, FailureKind.MEMORY, FailureKind.EXIT, FailureKind.HANG})
"""Failures of one process. Others are the user's, follow from another member's, or concern what all members share."""

Commands = list[do.Command]


class MemberRestarts:
    """Decides about the single members of one run's gangs, on the agents of the pool."""

    def __init__(self, sweep: Sweep, agents: Agents) -> None:
        self._sweep = sweep
        self._agents = agents
        # Else each event would look at every gang, though only those with parameter servers have such members.
        self._possible = sweep.limits.restarts_members and Role.PS in sweep.limits.roles
        """Some member of some gang may restart alone."""
        self._moves = sweep.limits.restarts_servers
        """Lost members may restart at other places: the rest of the gang meets them at its own parameter servers."""
        self._wait_s = MOVE_TIMEOUT_S if self._moves else AGENT_TIMEOUT_S

    def lost(self, gang: Gang, rank: Rank, failure: Failure | None, at: float) -> bool:
        """Member `rank` is gone; whether it restarts alone. Else it has ended, and perhaps the gang with it."""
        if failure is None or gang.stop.has_started:
            return False
        hung = gang.absences.by_rank.get(rank)
        if hung is not None and hung.stage is AbsenceStage.ENDING:
            failure = hung.failure
            since = hung.since
        elif self._restarts(gang, rank, failure):
            failure = gang.located(failure, rank)
            since = at
        else:
            return False
        gang.depart(rank, Absence(failure, since, AbsenceStage.WAITING, at + self._wait_s))
        return True

    def hangs(self, gang: Gang, late: Late) -> Commands:
        """The end of a member that hangs while all others train; nothing where the whole gang has to restart."""
        failure, at, rank = late
        # When several members hang, they wait for each other: no single one is the cause.
        if not self._restarts(gang, rank, failure) or len(stuck(gang, self._sweep.spec, at)) > 1:
            return []
        gang.absences.by_rank[rank] = Absence(gang.located(failure, rank), at, AbsenceStage.ENDING, at + END_TIMEOUT_S)
        return [do.Send(gang.agents[rank], m.StopMember(gang.member(rank), 0.0))]

    def _restarts(self, gang: Gang, rank: Rank, failure: Failure) -> bool:
        roles = [place.role for place in gang.places]
        if not self._possible or Role.PS not in roles or failure.kind not in KINDS:
            return False
        if roles[rank] is Role.PS and not self._moves:
            return False
        if rank == CHIEF or rank in gang.absences.by_rank or CHIEF in gang.attendance.ended:
            return False
        forms_or_stops = gang.status is not GangStatus.RUNNING or gang.stop.has_started
        if forms_or_stops or gang.fault.first is not None:
            return False
        return self._sweep.decide(self._sweep.trials[gang.trial], gang, failure) is Decision.RETRY

    # ---- the next process

    def place(self, at: float) -> Commands:
        """Give the members that wait for an agent one on their hosts, before other gangs form."""
        commands: Commands = []
        for gang in self._sweep.gangs.values() if self._possible and self._sweep.stop is None else ():
            for rank in gang.absences.in_stage(AbsenceStage.WAITING):
                agent = self._agent_for(gang, rank, at)
                if agent is not None and not gang.stop.has_started:
                    commands.append(self._place(gang, rank, agent, at))
        return commands

    def _agent_for(self, gang: Gang, rank: Rank, at: float) -> AgentState | None:
        """An idle agent on the member's host, its own where that lives; on any host where the member may move.

        One with GPUs for a worker if there is any, and one without for a parameter server.
        """
        place = gang.places[rank]
        sign = -1 if place.role is Role.PS else 1
        free = idle(self._agents, self._sweep, at)
        candidates = [agent for agent in free if _seat_of(agent) == (place.host, place.address)]
        if not candidates and self._moves:
            candidates = free
        return max(
            candidates, key=lambda candidate: (candidate.id == gang.agents[rank], sign * candidate.gpus), default=None
        )

    def _place(self, gang: Gang, rank: Rank, agent: AgentState, at: float) -> do.Command:
        member = gang.hand_to(rank, agent.id, at + self._sweep.limits.join_timeout_s)
        self._agents.occupy(agent, member)
        place = gang.places[rank]
        if _seat_of(agent) != (place.host, place.address):
            gang.move(rank, replace(place, host=agent.host, address=agent.address, port=0))
        trial = self._sweep.trials[gang.trial]
        newest = trial.checkpoints.newest
        port = gang.places[rank].port
        return do.PlaceMember(agent.id, member, gang.size, trial.params, newest, port)

    def reserved(self, gang: Gang, message: m.MemberReserved) -> Commands | None:
        """The member has its port again, and gets the addresses; the others learn where it is if it has moved.

        None for a member that does not restart alone.
        """
        rank = message.member.rank
        member = message.member
        absence = gang.absences.by_rank.get(rank)
        if absence is None:
            return None
        if gang.stop.by is not None or absence.reserved:
            return []
        place = gang.places[rank]
        moved = not place.port
        # The others dial the port that they know, and learn of no other where members cannot move.
        if absence.stage is not AbsenceStage.STARTING or (not moved and message.port != place.port):
            return [do.Refused(gang.agents[rank], f"{member} holds port {message.port}, the others know another one")]
        absence.reserved = True
        gang.move(rank, replace(place, port=message.port))
        formed = do.Send(gang.agents[rank], m.FormGang(member, gang.places))
        peers = [(agent, peer) for agent, peer in gang.live() if moved and peer.rank != rank]
        return [formed, *(do.Send(agent, m.MemberMoved(peer, rank, gang.places[rank])) for agent, peer in peers)]

    # ---- members that do not return

    def outcome(self, gang: Gang, rank: Rank, outcome: Outcome) -> Outcome:
        """The outcome of a member that ends, before the gang takes it: that of one which was away has both causes."""
        absence = gang.absences.by_rank.get(rank)
        if absence is None or outcome.failure is None or gang.stop.by is not None:
            return outcome
        return replace(outcome, failure=absence.failed(outcome.failure.summary))

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
            if absence.stage is AbsenceStage.WAITING and (late or self._sweep.stop is not None):
                where = "" if self._moves else f" on {gang.places[rank].host}"
                why = f"no agent{where} was idle within {self._wait_s:g} s" if late else "the run stops"
            elif absence.stage is AbsenceStage.STARTING and late:
                why = f"it did not train within {self._sweep.limits.join_timeout_s:g} s"
            if why:
                gang.fail(absence.failed(why), absence.since, rank)
        hanging = gang.absences.in_stage(AbsenceStage.ENDING)
        return next((rank for rank in hanging if at >= gang.absences.by_rank[rank].by), None)


def _seat_of(agent: AgentState) -> tuple[str, str]:
    return agent.host, agent.address
