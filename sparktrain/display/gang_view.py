"""A run of one gang while it runs: one line for each member. Pure: no terminal, no thread."""

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from sparktrain.base import formatting
from sparktrain.config.gang_spec import Role
from sparktrain.display import gang_text
from sparktrain.display.parts import GAP, metrics, objective_first, table
from sparktrain.display.progress import MemberLine, MemberState, Progress
from sparktrain.runs.steps.step_lines import slow_line, step_time, times_text

LAG = 0.2
"""A member is a straggler when its steps per second are below the median by more than this part."""

_HOST_WIDTH = 20
_MARK_WIDTH = 11
_REPORTED_WIDTH = 12
"""Least width of a column of metrics."""
_TIMES = ("compute", "wait", "data")
"""Columns with the parts of a step."""
_TIME_WIDTH = 8
_RINGS = (Role.CHIEF, Role.WORKER)


class Lag(NamedTuple):
    """The straggler of a gang."""

    rank: int
    behind: float
    """How far its steps per second are below the median, as a part of the median."""

    def __str__(self) -> str:
        return f"{100 * self.behind:.0f} % behind"


def shows_members(progress: Progress) -> bool:
    """Whether the run is that of one gang."""
    return progress.gang > 1 and progress.total == 1


def members_of(progress: Progress) -> tuple[MemberLine, ...]:
    """The members of the running gang, by rank; none before it starts."""
    return next((trial.members for trial in progress.running_trials), ())


def straggler(progress: Progress) -> Lag | None:
    """The straggler of the running gang.

    None in a gang that trains in step: its members make each step together, and their rates differ only because each
    measures them over another span of time.
    """
    return None if progress.in_step else lag_of(members_of(progress))


def lag_of(members: Sequence[MemberLine]) -> Lag | None:
    """The straggler among the members that train: the slowest, if it is more than `LAG` behind their median."""
    paces = {
        member.rank: member.steps_per_s
        for member in members
        if member.role in _RINGS and member.state is MemberState.TRAINING and member.steps_per_s is not None
    }
    usual = median(paces.values()) if paces else 0.0
    if not usual > 0:
        return None
    rank = min(paces, key=paces.__getitem__)
    behind = 1 - paces[rank] / usual
    return Lag(rank, behind) if behind > LAG else None


def counts(progress: Progress, over: bool = False) -> Text:
    """The gang on one line: what its members do, or how it ended."""
    line = Text(formatting.plain(progress.name), style="bold").append(f"  gang of {progress.gang}", "not bold")
    if progress.failed or progress.lost:
        return line.append("  ").append("failed" if progress.failed else "lost", style="red")
    if over or progress.done:
        return line.append("  done", "not bold")
    states = Counter(member.state for member in members_of(progress))
    state_counts = "  ".join(f"{states[state]} {state}" for state in MemberState if states[state])
    return line.append(f"  {state_counts or 'not started'}", "not bold")


def slow_member(progress: Progress) -> str:
    """The member that the others of the running gang wait for, on one line; empty where they are about equal."""
    slow = next((trial.slow for trial in progress.running_trials), None)
    return "" if slow is None else slow_line(slow, [member.host for member in members_of(progress)])


def standbys(progress: Progress) -> str:
    """The processes that wait for the loss of a member of the running gang, on one line; empty without `standby`."""
    return next((trial.standby for trial in progress.running_trials), "")


def newest(progress: Progress) -> str:
    """The step, pace and metrics of the chief, as parts of a line."""
    return "  ".join(_newest(progress))


def status(progress: Progress) -> str:
    """The same on one line with `counts`, for a log."""
    parts = counts(progress).plain.replace("  ", ": ", 1).replace("  ", ", ")
    lag = straggler(progress)
    slow = [f"rank {lag.rank} is {lag} the median"] if lag else []
    return "; ".join(
        filter(None, [parts, ", ".join(_newest(progress)), *slow, slow_member(progress), standbys(progress)])
    )


def member_lines(progress: Progress) -> list[str]:
    """One line for each member, for a log."""
    members = members_of(progress)
    lag = straggler(progress)
    return [_member_line(member, lag, progress.metric) for member in members]


class MemberTable:
    """The members as a table. It remembers its columns, so that they stay between two pictures."""

    def __init__(self) -> None:
        self._host = 4
        self._role = False
        self._marked = False
        self._timed = False

    def draw(self, progress: Progress, width: int, rows: int) -> Table:
        """A table of at most `rows` members, the straggler among them."""
        members = members_of(progress)
        lag = straggler(progress)
        self._see(members, lag)
        grid = table(header_style="dim")
        columns = self._columns()
        used_width = sum(size + GAP for _, size, _ in columns)
        times = [(name, _TIME_WIDTH, True) for name in _TIMES] if self._timed else []
        times = times if used_width + sum(size + GAP for _, size, _ in times) - GAP <= width else []
        columns += times
        used_width += sum(size + GAP for _, size, _ in times)
        for name, size, right in columns:
            grid.add_column(Text(name), justify="right" if right else "left", width=size, no_wrap=True)
        free_width = width - used_width
        if free_width >= _REPORTED_WIDTH:
            grid.add_column(Text("reported"), width=free_width, no_wrap=True, overflow="ellipsis")
        for member in shown(members, lag, rows):
            marked = lag is not None and lag.rank == member.rank
            cells = self._cells(member, f"{lag}" if marked else "")
            cells += _times(member) if times else []
            if free_width >= _REPORTED_WIDTH:
                cells.append(metrics(objective_first(member.metrics, progress.metric)))
            grid.add_row(*map(Text, cells), style="yellow" if marked else "")
        return grid

    def _see(self, members: Sequence[MemberLine], lag: Lag | None) -> None:
        hosts = [len(formatting.short_host(member.host or "")) for member in members]
        self._host = max([self._host, *(min(_HOST_WIDTH, size) for size in hosts)])
        self._role |= any(member.role not in _RINGS for member in members)
        self._marked |= lag is not None
        self._timed |= any(member.times is not None for member in members)

    def _columns(self) -> list[tuple[str, int, bool]]:
        """Heading, width, and whether cells end at the right."""
        columns = [("rank", 4, True), ("host", self._host, False), ("state", 8, False), ("step", 7, True)]
        columns += [("steps/s", 7, True)]
        columns[2:2] = [("role", 9, False)] if self._role else []
        return columns + ([("", _MARK_WIDTH, False)] if self._marked else [])

    def _cells(self, member: MemberLine, mark: str) -> list[str]:
        cells = [str(member.rank), formatting.shorten(formatting.short_host(member.host or ""), self._host)]
        cells += [str(member.role)] if self._role else []
        cells += [str(member.state), "" if member.step is None else str(member.step), _pace(member)]
        return cells + ([mark] if self._marked else [])


def shown(members: Sequence[MemberLine], lag: Lag | None, rows: int) -> list[MemberLine]:
    """The first `rows` members; the straggler takes the place of the last one."""
    first = list(members[:rows])
    if lag is not None and first and all(member.rank != lag.rank for member in first):
        first[-1] = next(member for member in members if member.rank == lag.rank)
    return first


def _times(member: MemberLine) -> list[str]:
    of = member.times
    return [""] * len(_TIMES) if of is None else [step_time(part) for part in (of.compute_s, of.wait_s, of.data_s)]


def _newest(progress: Progress) -> list[str]:
    members = members_of(progress)
    if not members:
        return []
    chief = members[0]
    parts = [f"step {chief.step}"] if chief.step is not None else []
    parts += [f"{_pace(chief)} steps/s"] if chief.steps_per_s is not None else []
    reported = objective_first(chief.metrics, progress.metric)
    return parts + [metrics({name: value}) for name, value in reported.items()]


def _member_line(member: MemberLine, lag: Lag | None, objective: str | None) -> str:
    parts = [f"step {member.step}"] if member.step is not None else []
    parts += [f"{_pace(member)} steps/s"] if member.steps_per_s is not None else []
    parts += [f"{lag} the median"] if lag is not None and lag.rank == member.rank else []
    parts += [times_text(member.times)] if member.times is not None else []
    parts += [metrics(objective_first(member.metrics, objective))] if member.metrics else []
    role = "" if member.role in _RINGS else f" ({member.role})"
    details = f": {', '.join(parts)}" if parts else ""
    return f"{gang_text.member(member.rank, member.host)}{role} {member.state}{details}"


def _pace(member: MemberLine) -> str:
    if member.steps_per_s is None:
        return ""
    return f"{member.steps_per_s:.2f}" if member.steps_per_s < 1 else f"{member.steps_per_s:.1f}"
