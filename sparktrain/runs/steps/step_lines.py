"""Where the steps of a gang go, as text."""

from collections.abc import Sequence

from sparktrain.base import formatting
from sparktrain.state.gangs.step_times import GangTimes, SlowCause, SlowMember, StepTimes
from sparktrain.state.gangs.stragglers import lossy_members

_SHOWN = 16
"""The most members with a line of their own."""
_CAUSES = {
    SlowCause.DATA: "it waits longer for data",
    SlowCause.COMPUTE: "it computes longer",
    SlowCause.QUOTA: "it computes longer, because a CPU quota stops it",
    SlowCause.GPU_CLOCK: "it computes longer, because heat or power limits the clock of its GPU",
}


def step_lines(times: GangTimes, hosts: Sequence[str | None]) -> list[str]:
    """A line for each of the first members, and one for a slow member; `hosts` are by rank."""
    lines = [f"{_place(rank, hosts)}: {times_text(of)}" for rank, of in enumerate(times.members[:_SHOWN])]
    hidden = len(times.members) - len(lines)
    lines += [f"and {formatting.count(hidden, 'more member')}"] if hidden else []
    lines += [
        f"{_place(rank, hosts)} sends {100 * times.members[rank].resent:.1f} % of its TCP segments again, and all "
        "members wait long for each other: its network loses packets"
        for rank in lossy_members(times.members)[:_SHOWN]
    ]
    return [*lines, *([slow_line(times.slow, hosts)] if times.slow is not None else [])]


def times_text(times: StepTimes) -> str:
    """Where a step of one member goes."""
    parts = (times.compute_s, "computes"), (times.wait_s, "waits for the others"), (times.data_s, "waits for data")
    return ", ".join(f"{verb} {step_time(seconds)}" for seconds, verb in parts)


def slow_line(slow: SlowMember, hosts: Sequence[str | None]) -> str:
    """Which member is slow, by how much, and where its time goes."""
    return (
        f"{_place(slow.rank, hosts)} is slow: its steps take {step_time(slow.work_s)}, those of the others "
        f"{step_time(slow.others_s)}; {_CAUSES[slow.cause]}"
    )


def step_time(seconds: float) -> str:
    """A part of a step."""
    if seconds >= 10:
        return f"{seconds:.1f} s"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 or not seconds else f"{1000 * seconds:.1f} ms"


def _place(rank: int, hosts: Sequence[str | None]) -> str:
    host = hosts[rank] if rank < len(hosts) else None
    return f"rank {rank}" if host is None else f"rank {rank} on {formatting.plain(host)}"
