"""Several runs, as `sparktrain ls` and `status` show them. Pure: no terminal, no thread, no store."""

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from sparktrain.base import formatting
from sparktrain.display import parts
from sparktrain.display.parts import table
from sparktrain.runs.listing.run_list import ListedRun

_ALWAYS = 3
"""Columns that are there also without a cell: run, state and trials."""
_STYLES = {"running": "green", "driver gone": "red"}


class RunsTable:
    """A rich renderable: one line for each run, in the given order, at `now` by this host's clock.

    `left_out` files and folders of the directory are no runs.
    """

    def __init__(self, runs: Sequence[ListedRun], now: float, left_out: int = 0) -> None:
        self._left_out = left_out
        self._runs = [run for run in runs if run.row.readable]
        self._unreadable_runs = [run for run in runs if not run.row.readable]
        self._now = now
        self._has_gangs = any(run.row.slots.per_trial > 1 for run in self._runs)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = [("run", "left"), ("state", "left"), ("trials", "right"), ("failed", "right"), ("best", "left")]
        columns += [("started", "right"), ("duration", "right"), ("slots", "right"), ("in use", "right")]
        columns += [("restarts", "right"), ("size", "right"), ("owner", "left")]
        rows = [self._cells(run) for run in self._runs]
        shown_columns = [i for i in range(len(columns)) if i < _ALWAYS or any(row[i] for row in rows)]
        grid = table(*(columns[i] for i in shown_columns))
        for run, row in zip(self._runs, rows, strict=True):
            grid.add_row(*(row[i] for i in shown_columns), style=_STYLES.get(run.row.state, ""))
        if rows:
            yield grid
        for run in self._unreadable_runs:
            yield Text(f"{formatting.plain(run.row.id)}: {formatting.plain(run.row.problem)}", style="red")
        if self._left_out:
            noun = "file or folder is no run" if self._left_out == 1 else "files and folders are no runs"
            yield Text(f"{self._left_out} other {noun}", style="dim")

    def _cells(self, run: ListedRun) -> list[str]:
        row = run.row
        of = "" if row.total is None else f"/{row.total}"
        started = row.clock.started
        slots = row.slots
        return [
            formatting.plain(row.label.name),
            row.state,
            f"{row.done}{of}",
            str(row.failed) if row.failed else "",
            "" if row.value is None else parts.metrics({row.label.metric or "": row.value}),
            "" if started is None else formatting.ago(self._now - started),
            "" if started is None else formatting.long_duration(row.clock.seconds_at(self._now)),
            str(slots.per_trial) if self._has_gangs else "",
            str(slots.busy) if slots.busy else "",
            str(row.restarts) if row.restarts else "",
            "" if run.usage is None else formatting.size(run.usage.size),
            formatting.plain(row.owner.user),
        ]
