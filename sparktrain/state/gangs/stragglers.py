"""Which member of a gang is slow, from how long each of them works in a step and waits for the others. Pure.

In a ring all members end a step together, so that their rates are equal. The slow one is the one that works longest,
and waits least.
"""

from collections.abc import Mapping, Sequence
from statistics import median

from sparktrain.base.ids import Rank
from sparktrain.state.gangs.step_times import LOOKED_STEPS, SlowCause, SlowMember, StepTimes

SLOWER = 0.065
"""A member is slow when it works longer by more than this part. Over 20 steps that vary by 3 %, one that is 10 %
slower is above it, and none of equal members is."""
LONG_WAIT = 0.2
"""All members wait long where each of them spends this part of a step in collectives."""
LOSSY = 0.01
"""A network loses segments where this part of them is sent again."""
STAYS_SLOWER = 0.04
"""It stays slow down to this part, so that the answer does not change with each report."""


def slow_member(times: Mapping[Rank, StepTimes], before: int | None = None) -> SlowMember | None:
    """The slow one of the members, by the newest times of all of them; None where all are about equal.

    `before` is the rank of the one that was slow so far. None of fewer than two members is slow.
    """
    if len(times) < 2 or any(of.steps < LOOKED_STEPS for of in times.values()):
        return None
    rank = max(times, key=lambda member: times[member].work_s)
    peers = [of for member, of in times.items() if member != rank]
    usual_s = median(of.work_s for of in peers)
    excess_s = times[rank].work_s - usual_s
    if excess_s <= (STAYS_SLOWER if rank == before else SLOWER) * usual_s:
        return None
    data_s = times[rank].data_s - median(of.data_s for of in peers)
    throttled_s = times[rank].throttled_s - median(of.throttled_s for of in peers)
    if 2 * data_s > excess_s:
        cause = SlowCause.DATA
    elif 2 * throttled_s > excess_s:
        cause = SlowCause.QUOTA
    elif times[rank].clock_limited and 2 * sum(of.clock_limited for of in peers) < len(peers):
        cause = SlowCause.GPU_CLOCK
    else:
        cause = SlowCause.COMPUTE
    return SlowMember(int(rank), times[rank].work_s, usual_s, cause)


def lossy_members(times: Sequence[StepTimes]) -> list[int]:
    """The ranks with a network that loses segments, where the members wait long for each other; by rank."""
    if len(times) < 2 or any(of.wait_s < LONG_WAIT * (of.work_s + of.wait_s) for of in times):
        return []
    return [rank for rank, of in enumerate(times) if of.resent >= LOSSY]
