"""The end of a run as a table, for people."""

from collections.abc import Iterator, Sequence

from rich.cells import chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from sparktrain import formatting
from sparktrain.display.failure_causes import explained
from sparktrain.display.parts import where_lines
from sparktrain.display.trial_table import TrialTable, headline
from sparktrain.runs.pareto import front_of
from sparktrain.runs.sweep_outcome import SweepOutcome

_TABLE_WIDTH = 160
"""At most, however wide the terminal is, or a file."""
_MOST_WARNINGS = 5


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
            yield Text(f"\nPareto front: trials {', '.join(str(each.id) for each in front)}", no_wrap=True)
        yield from _warnings(self._result)
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


def _warnings(result: SweepOutcome) -> Iterator[Text]:
    """The warnings, each once: trials without a checkpoint of their last state, and notices of trials."""
    trials: dict[str, list[int]] = {}
    if unsaved := [trial for trial in result.trials if trial.unsaved]:
        trials[unsaved[0].unsaved] = [trial.id for trial in unsaved]
    for trial in result.trials:
        for each in trial.notices:
            trials.setdefault(each, []).append(trial.id)
    for each, of in list(trials.items())[:_MOST_WARNINGS]:
        others = f", and {formatting.count(len(of) - 1, 'other trial')} likewise" if len(of) > 1 else ""
        yield Text(f"\nwarning: trial {of[0]}: {formatting.plain(each)}{others}", style="yellow")
