"""The end of a run as a table, for people."""

from collections.abc import Sequence

from rich.cells import chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from sparktrain.base import formatting
from sparktrain.display.failure_causes import explained
from sparktrain.display.parts import warning_lines, where_lines
from sparktrain.display.trial_table import TrialTable, headline
from sparktrain.runs.pareto import front_of
from sparktrain.runs.sweep_outcome import SweepOutcome

_TABLE_WIDTH = 160
"""At most, however wide the terminal is, or a file."""


def summary_table(result: SweepOutcome) -> "Summary":
    """The summary that the command line prints at the end: headline, trials, and why trials failed."""
    return Summary(result)


class Summary:
    """A rich renderable."""

    def __init__(self, result: SweepOutcome) -> None:
        self._result = result

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(headline(self._result), style="bold")
        if self._result.trials:
            yield Text()
        yield from console.render(TrialTable(self._result), options.update(width=min(options.max_width, _TABLE_WIDTH)))
        yield from explained(self._result, options.max_width)
        if self._result.other_metrics and (front := front_of(self._result)):
            yield Text(f"\nPareto front: trials {', '.join(str(trial.id) for trial in front)}", no_wrap=True)
        yield from (Text(f"\n{line}", style="yellow") for line in warning_lines(self._result))
        if places := where_lines(self._result.directory):
            yield Text("\n".join(["", *places]), style="dim")


class Lines:
    """A rich renderable: lines as they are, the first one bold, broken only where the terminal ends."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number, line in enumerate(self._lines):
            style = "" if number else "bold"
            yield from (
                Text(part, style, no_wrap=True) for part in chop_cells(formatting.plain(line), options.max_width)
            )
