"""The logs of a run as a list: for people, and for programs."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from sparktrain.base import formatting
from sparktrain.display.parts import STYLES, table
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.logs import LogFile, LogSelection, chosen
from sparktrain.runs.next_commands import logs_command
from sparktrain.runs.view import RunView

VERSION = 1


class LogTable:
    """A rich renderable: a line for each trial, with the log of its newest chief."""

    def __init__(self, view: RunView, logs: Sequence[LogFile]) -> None:
        self._view = view
        self._logs = logs

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        right = [(name, "right") for name in ("generations", "logs", "size")]
        grid = table(("trial", "right"), ("status", "left"), *right)
        grid.add_column("parameters", no_wrap=True, overflow="ellipsis")
        newest = {log.member.trial: log for log in chosen(self._logs, LogSelection())}
        for result in self._view.results:
            log = newest.get(result.id)
            count = sum(member_log.member.trial == result.id for member_log in self._logs)
            cells = [str(result.id), str(result.status), str(result.generations), str(count)]
            cells += ["" if log is None else formatting.size(log.size), formatting.params(result.params)]
            grid.add_row(*map(Text, cells), style=STYLES.get(result.status, ""))
        yield grid
        yield Text(f"\n{formatting.plain(logs_command(self._view.directory, 'TRIAL'))} prints one", style="dim")


def logs_json(place: RunLocation, view: RunView, logs: Sequence[LogFile]) -> dict[str, Any]:
    """What `sparktrain logs --json` prints, and docs/results-json.md describes."""
    files = [
        {
            "trial": log.member.trial,
            "generation": log.member.generation,
            "rank": log.member.rank,
            "restart": log.member.incarnation,
            "path": place.store.where(log.path),
            "size": log.size,
        }
        for log in logs
    ]
    return {"version": VERSION, "name": view.name, "directory": view.directory, "logs": files}
