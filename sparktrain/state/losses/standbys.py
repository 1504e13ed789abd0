"""Processes that wait for the loss of a member, whichever it is: how many, where, and which place each takes. Pure.

A gang that heals has up to `standby` of them, on idle agents. Each is prepared for one rank, as a process that a
drained member moves to (`handovers`): it builds its model, traces the step of a `fit`, and waits. When a member is
lost, a process that waits takes its place in the ring that the others form at once. A process with a training function
that has read its rank can take that place alone. After one has taken a place, the next process starts on the agent that
is idle then.

None of them is of the gang before it takes a place: the end of a process, or of its agent, costs the gang nothing. One
on a drained agent ends, and starts elsewhere. A lost member without an idle agent gets that of a process that waits for
another rank, or is not ready.
"""

from sparktrain.state.gangs.gang import Gang
from sparktrain.state.losses.handover import MOST_STANDBY_FAILURES
from sparktrain.state.seats.seat import SeatState


def standby_line(gang: Gang, standby: int) -> str:
    """The processes of a gang that wait for a loss, in one line; empty without `standby`."""
    if not standby:
        return ""
    ready = [process for process in gang.handovers.standbys if process.state is SeatState.WAITING]
    starting = len(gang.handovers.standbys) - len(ready)
    bound = sorted({process.member.rank for process in ready if process.standing.bound})
    # A loop of the user's own passes its step only once it trains.
    traced = " and step traced" if gang.attendance.moves else ""
    parts = [f"{len(ready)} ready, model built{traced}"] if ready else []
    parts += [f"for rank {', '.join(map(str, bound))} alone, which the function has read"] if bound else []
    parts += [f"{starting} starting"] if starting else []
    if not parts and gang.handovers.standby_failures >= MOST_STANDBY_FAILURES:
        parts = [f"none, for {MOST_STANDBY_FAILURES} processes ended, and none took a place"]
    return f"standby: {'; '.join(parts) or f'0 of {standby}'}"
