"""A gang as text and HTML: its restarts, and how its run ended."""

from html import escape

from sparktrain.base import formatting
from sparktrain.display.parts import html_row, metrics, where_lines
from sparktrain.runs.sweep_outcome import GangOutcome
from sparktrain.state.outcome import OF_DRAIN, OF_RING, Restart, RestartHow


def restart_line(number: int, restart: Restart) -> str:
    """The lost member of restart `number` (from 1), the cause, and the cost."""
    cost = formatting.duration(restart.seconds)
    if restart.steps_lost is not None:
        steps = formatting.count(restart.steps_lost, "step") if restart.steps_lost else "no step"
        cost += f", {steps} repeated"
    elif restart.how is RestartHow.ALONE:
        cost += ", alone"
    elif restart.resumed_from_step is None:
        cost += ", without a checkpoint"
    if restart.how in OF_DRAIN:
        host = "" if restart.host is None else f" from {formatting.plain(restart.host)}"
        return f"restart {number}: rank {restart.rank} moved{host}: {formatting.plain(restart.cause)}; {cost}"
    cause = formatting.plain(restart.cause) + ("; the others kept their state" if restart.how in OF_RING else "")
    if restart.how is RestartHow.SHRUNK:
        cause += f" and continue with {restart.members} of {formatting.count(restart.full_size or 0, 'member')}"
    return f"restart {number}: {member(restart.rank, restart.host)}: {cause}; {cost}"


def restart_lines(restarts: tuple[Restart, ...]) -> list[str]:
    """One line for each, the oldest first."""
    return [restart_line(number, restart) for number, restart in enumerate(restarts, 1)]


def member(rank: int | None, host: str | None) -> str:
    """Which member, and where: `rank 1 on gpu-2`."""
    label = "a member" if rank is None else f"rank {rank}"
    return label if host is None else f"{label} on {formatting.plain(host)}"


def run_lines(result: GangOutcome) -> list[str]:
    """A run, mostly one that succeeded, for `print` and for the command line."""
    lines = [_headline(result)]
    lines += [f"metrics: {metrics(result.metrics)}"] if result.metrics else []
    lines += [f"error: {formatting.plain(result.error.summary)}"] if result.error is not None else []
    lines += restart_lines(result.restarts)
    lines += [f"warning: {formatting.plain(notice)}" for notice in (result.unsaved, *result.notices) if notice]
    lines += [f"model: {formatting.plain(result.model_path)}"] if result.model_path is not None else []
    return [*lines, *where_lines(result.directory)]


def run_html(result: GangOutcome) -> str:
    """The same for a notebook, and a table of its members. Everything that a program named is escaped."""
    headline, *lines = run_lines(result)
    rows = ["<tr><th>rank</th><th>role</th><th>host</th><th>log</th></tr>"]
    for member in result.members:
        cells = (str(member.rank), str(member.role), formatting.plain(member.host or ""), formatting.plain(member.log))
        rows.append(html_row((cell, "left") for cell in cells))
    details = "".join(f"<p>{escape(line)}</p>\n" for line in lines)
    return "\n".join(["<div>", f"<p><b>{escape(headline)}</b></p>", f"{details}<table>", *rows, "</table>", "</div>"])


def _headline(result: GangOutcome) -> str:
    size = formatting.count(len(result.members), "member")
    again = f", {formatting.count(len(result.restarts), 'restart')}" if result.restarts else ""
    took = formatting.run_time(result.seconds, result.wall_seconds)
    return f"{formatting.plain(result.name)}: {result.status} in {took} on {size}{again}."
