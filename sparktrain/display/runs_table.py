"""Several runs, as `sparktrain ls` and `status` show them. Pure: no terminal, no thread, no store."""

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from sparktrain import formatting
from sparktrain.display import parts
from sparktrain.display.parts import table
from sparktrain.runs.run_list import ListedRun, UnreadableRun
from sparktrain.runs.trial_result import FAILED_OR_LOST
from sparktrain.runs.view import RunState

_ALWAYS = 3
"""Columns that are there also without a cell: run, state and trials."""
_STYLES = {RunState.RUNNING: "green", RunState.GONE: "red", RunState.ENDED: ""}


class RunsTable:
    """A rich renderable: one line for each run, in the given order, at `now` by this host's clock."""

    def __init__(self, runs: Sequence[ListedRun], unreadable: Sequence[UnreadableRun], now: float) -> None:
        self._runs = runs
        self._unreadable = unreadable
        self._now = now

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = [("run", "left"), ("state", "left"), ("trials", "right"), ("failed", "right"), ("best", "left")]
        columns += [("started", "right"), ("size", "right"), ("owner", "left")]
        rows = [self._cells(run) for run in self._runs]
        shown_columns = [i for i in range(len(columns)) if i < _ALWAYS or any(row[i] for row in rows)]
        grid = table(*(columns[i] for i in shown_columns))
        for run, row in zip(self._runs, rows, strict=True):
            grid.add_row(*(row[i] for i in shown_columns), style=_STYLES[run.view.state])
        if rows:
            yield grid
        for broken_run in self._unreadable:
            yield Text(f"{formatting.plain(broken_run.name)}: {formatting.plain(broken_run.problem)}", style="red")

    def _cells(self, run: ListedRun) -> list[str]:
        view = run.view
        value = run.value
        of = "" if view.total is None else f"/{view.total}"
        failed = sum(view.counts.get(status, 0) for status in FAILED_OR_LOST)
        return [
            formatting.plain(view.name),
            run.state,
            f"{view.done}{of}",
            str(failed) if failed else "",
            "" if value is None else parts.metrics({view.spec.metric or "": value}),
            "" if view.times.started is None else formatting.ago(self._now - view.times.started),
            "" if run.usage is None else formatting.size(run.usage.size),
            "" if view.driver.identity is None else formatting.plain(view.driver.identity.user),
        ]
