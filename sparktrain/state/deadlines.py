"""A gang's deadlines: members that have not joined, and members without progress. Pure."""

from collections import deque
from collections.abc import Mapping

from sparktrain.base.ids import Rank, TrialId
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.state.gangs.gang import Gang, GangStatus
from sparktrain.state.gangs.gang_progress import Pace
from sparktrain.state.outcome import Failure, FailureKind

MOST_GANGS = 1000
"""Gangs that one tick checks. Ticks come ten times a second, so that 10,000 gangs are each checked once a second."""
FIRST_STEP_TIMEOUT_S = 900.0
"""From the report that a member trains until its first step: it may compile for long."""
USUAL_STEPS = 10
"""A member hangs when one step takes longer than this many of its usual steps."""

Late = tuple[Failure, float, Rank]
"""A failure, when it was detected, and the member that caused it."""


def not_joined(gang: Gang, timeout_s: float, at: float) -> Late | None:
    """The failure of a gang in which some member did not enter the training function in time."""
    if gang.status not in (GangStatus.RESERVING, GangStatus.CONNECTING) or at < gang.attendance.formed_at + timeout_s:
        return None
    reserving = gang.status is GangStatus.RESERVING and gang.size > 1
    entered = gang.attendance.entered
    missing = [
        Rank(rank) for rank, place in enumerate(gang.places) if not (place.port if reserving else rank in entered)
    ]
    joined = f"{gang.size - len(missing)} of {gang.size} members joined within {timeout_s:g} s; missing: "
    absentees = ", ".join(f"rank {rank} on {gang.places[rank].host}, {_state(gang, rank)}" for rank in missing)
    # Not FORM, which waits for a better cause: the members had their time.
    return Failure(FailureKind.LOST, joined + absentees), at, missing[0]


def _state(gang: Gang, rank: Rank) -> str:
    agent = f"agent {gang.agents[rank]}"
    if gang.status is GangStatus.CONNECTING:
        return f"{agent}, which knows all addresses and is not connected"
    return f"{agent}, which has not loaded the training function"


def hang(gang: Gang, spec: SweepSpec, at: float) -> Late | None:
    """The failure of a gang with a member that has finished no step for too long, if its members report steps.

    A member that waits for rows of a stream does not hang: these may take any time.
    """
    live = stuck(gang, spec, at)
    if not live:
        return None
    # In a ring all members wait for one: the one that is behind holds up the others.
    progress = gang.progress
    paces = {**progress.reported, **progress.paces}
    last = min(live, key=lambda rank: paces[rank].step)
    pace = paces[last]
    behind = [peer for peer in paces.values() if peer.step > pace.step]
    clause = " while others are ahead of it" if behind else " and no other member is ahead of it" if live[1:] else ""
    where = f"rank {last} on {gang.places[last].host}" if gang.size > 1 else f"process on {gang.places[last].host}"
    verb, unit = ("finished", "training step") if last in progress.paces else ("reported", "step")
    summary = (
        f"{where} has {verb} no {unit} for {at - pace.at:.0f} s after step {pace.step}{clause}: it hangs; see "
        "where in its log, or raise hang_timeout when its steps take that long"
    )
    return Failure(FailureKind.HANG, summary), at, last


def stuck(gang: Gang, spec: SweepSpec, at: float) -> list[Rank]:
    """The members that have finished no step for too long, but for those that are ended, or wait for rows.

    None while a ring heals: the absence of the lost member has a deadline.
    """
    if gang.status is not GangStatus.RUNNING or gang.absences.healing is not None:
        return []
    progress = gang.progress
    late = [rank for rank, pace in progress.paces.items() if _overdue(pace, spec.gang.hang_timeout_s, at)]
    reporting = [(rank, report) for rank, report in progress.reported.items() if rank not in progress.paces]
    silent = [rank for rank, report in reporting if _silent(report, spec, at)]
    # A member that waits for rows waits for Spark, which may take any time.
    excused = {*gang.attendance.ended, *gang.absences.by_rank, *(rank for rank, _ in progress.awaiting)}
    return [rank for rank in (*late, *silent) if rank not in excused]


def _silent(report: Pace, spec: SweepSpec, at: float) -> bool:
    return spec.report_timeout_s is not None and at - report.at > spec.report_timeout_s


def _overdue(pace: Pace, timeout_s: float, at: float) -> bool:
    patience_s = USUAL_STEPS / pace.per_s if pace.per_s > 0 else FIRST_STEP_TIMEOUT_S
    return pace.training and at - pace.at > max(timeout_s, patience_s)


class GangRounds:
    """Goes round the gangs of a run, as they are at the start of each round."""

    def __init__(self, most: int = MOST_GANGS) -> None:
        self._most = most
        self._pending: deque[TrialId] = deque()

    def due(self, gangs: Mapping[TrialId, Gang]) -> list[Gang]:
        """The gangs for this tick, `most` of them at most; each one comes once in a round."""
        if not self._pending:
            self._pending.extend(gangs)
        turn = [self._pending.popleft() for _ in range(min(self._most, len(self._pending)))]
        return [gangs[trial] for trial in turn if trial in gangs]
