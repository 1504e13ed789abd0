"""The trials of a run as a table: for a terminal, for a file, and for a notebook.

A sweep with repeats or folds has a row for each case, with means and their standard errors.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from io import StringIO
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from sparktrain.base import formatting
from sparktrain.display.failure_causes import explained
from sparktrain.display.parts import GAP, STYLES, html_row, table, warning_lines, where_lines
from sparktrain.runs.case_result import CaseResult
from sparktrain.runs.sweep_outcome import SweepOutcome, metric_names, names
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.trial import TrialStatus

BEST = "best"
_TEXT_WIDTH = 100
_CAUSE_WIDTH = 4000
"""Nothing of a path or a line of code is broken into lines."""
_MOST_ROWS = 40
_BEST_ROWS = 20
_CELL_LIMITS = (32, 16, 10)
"""Longest cell and heading of a parameter: the widest that fits."""
_PARAMS_AT_LEAST = 12
_COUNTED = (TrialStatus.PRUNED, TrialStatus.FAILED, TrialStatus.LOST, TrialStatus.STOPPED)


Row = TrialResult | CaseResult
"""What has a line of the table."""


MOST_LABELLED = 20
"""So many trials with notes or tags are listed."""


class TableColumn(NamedTuple):
    """One column: its heading, and one cell for each row."""

    heading: str
    cells: list[str]
    right: bool = False

    @property
    def width(self) -> int:
        """Characters of a terminal that the column takes."""
        return max(map(cell_len, [self.heading, *self.cells]))


class TrialTable:
    """A rich renderable. In a narrow terminal it drops further metrics first, then cuts parameters."""

    def __init__(self, result: SweepOutcome) -> None:
        self._result = result

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = _shown(self._result)
        if not self._result.trials:
            return
        grid = table()
        columns = _fitting(self._result, rows, options.max_width)
        for column in columns:
            width = min(column.width, options.max_width)
            grid.add_column(
                Text(column.heading), justify="right" if column.right else "left", no_wrap=True, min_width=width
            )
        best = leader(self._result)
        for trial, cells in zip(rows, zip(*(column.cells for column in columns), strict=True), strict=True):
            style = "bold green" if trial is best else STYLES.get(trial.status, "")
            grid.add_row(*(Text(cell) for cell in cells), style=style)
        yield grid
        yield from (Text(line, style="dim") for line in _notes(self._result, rows))


def headline(result: SweepOutcome) -> str:
    """The run on one line: how it ended, how many trials it had, and the best one."""
    counts = [(sum(trial.status is status for trial in result.trials), status.value) for status in _COUNTED]
    parts = [formatting.count(len(result.trials), "trial"), *(f"{count} {status}" for count, status in counts if count)]
    reason = f" ({formatting.plain(result.reason)})" if result.reason else ""
    took = formatting.run_time(result.seconds, result.wall_seconds)
    line = f"{formatting.plain(result.name)}: {result.status}{reason}. {', '.join(parts)}, in {took}."
    best = leader(result)
    if best is None or result.metric is None:
        return line
    value = measured(best, result.metric, written_metric(_rows(result), result.metric))
    return f"{line} Best {formatting.plain(result.metric)} {value}: {_word(result)} {best.id}."


def as_text(result: SweepOutcome) -> str:
    """Headline, table, why trials failed, warnings, where the results are, without colours: for `print` and logs."""
    out = StringIO()
    # In a notebook rich would display the table in addition to the text.
    console = Console(file=out, width=_TEXT_WIDTH, color_system=None, force_terminal=False, force_jupyter=False)
    console.print(Text(headline(result)))
    console.print(TrialTable(result))
    for line in explained(result, _CAUSE_WIDTH):
        console.print(line, soft_wrap=True)
    for text in (*warning_lines(result), *where_lines(result.directory)):
        console.print(Text(text), soft_wrap=True)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())


def as_html(result: SweepOutcome) -> str:
    """Headline and table for a notebook. Everything that a training function or its caller named is escaped."""
    rows = _shown(result)
    columns = [*_leading(result, rows), *_metrics(result, rows), *_trailing(rows, leader(result))]
    errors = [row.error if isinstance(row, TrialResult) else None for row in rows]
    causes = [formatting.plain(error.summary) if error else "" for error in errors]
    if any(causes):
        columns.append(TableColumn("cause", causes))
    best = leader(result)
    lines = [f"<p><b>{escape(headline(result))}</b></p>", "<table>", html_row(_html_cells(columns, None), "th")]
    for number, trial in enumerate(rows):
        style = "font-weight: bold" if trial is best else ""
        lines.append(html_row(_html_cells(columns, number), style=style))
    lines.append("</table>")
    lines += [f"<p>{escape(note)}</p>" for note in _notes(result, rows)]
    causes_text = "\n".join(line.plain for line in explained(result, _CAUSE_WIDTH)).strip("\n")
    lines += [f"<pre>{escape(causes_text)}</pre>"] if causes_text else []
    return "\n".join(["<div>", *lines, "</div>"])


def leader(result: SweepOutcome) -> Row | None:
    """The best trial, or case; None where there is none."""
    return next(iter(_ranked(result)), None)


def _word(result: SweepOutcome) -> str:
    return "trial" if result.replication.size == 1 else "case"


def _rows(result: SweepOutcome) -> Sequence[Row]:
    return result.trials if result.replication.size == 1 else result.cases


def _ranked(result: SweepOutcome) -> Sequence[Row]:
    return result.ranked if result.replication.size == 1 else result.ranked_cases


def measured(row: Row, metric: str, write: Callable[[float], str] = formatting.number) -> str:
    """The metric, as `write` formats it; of a case its mean, with the standard error."""
    value = write(row.metrics[metric])
    if isinstance(row, TrialResult):
        return value
    error = row.standard_errors.get(metric)
    return f"{value} (n={row.n})" if error is None else f"{value} ± {formatting.number(error)} (n={row.n})"


def _shown(result: SweepOutcome) -> list[Row]:
    """All trials or cases, or the best ones when there are too many to read."""
    rows = _rows(result)
    if len(rows) <= _MOST_ROWS:
        return list(rows)
    return list((_ranked(result) if result.metric else rows)[:_BEST_ROWS])


def _notes(result: SweepOutcome, rows: list[Row]) -> Iterator[str]:
    fixed = _fixed(_rows(result))
    number = len(_rows(result))
    if fixed:
        yield f"every trial: {formatting.params(fixed)}"
    size = result.replication.size
    partly = [
        row for row in rows if isinstance(row, CaseResult) and row.status is TrialStatus.SUCCEEDED and row.n < size
    ]
    if partly:
        named = ", ".join(str(row.id) for row in partly)
        yield f"trials have failed in case {named}: its means are of the n of {size} trials that succeeded"
    if len(rows) < number:
        order = "the best" if result.metric else "the first"
        yield f"{order} {len(rows)} of {formatting.count(number, _word(result))}"
    yield from label_lines(result.trials)


def label_lines(trials: Sequence[TrialResult]) -> list[str]:
    """A line for each trial with notes or tags of users, at most twenty."""
    labelled = [trial for trial in trials if trial.notes or trial.tags]
    lines = []
    for trial in labelled[:MOST_LABELLED]:
        tags = f" [{', '.join(trial.tags)}]" if trial.tags else ""
        notes = f": {'; '.join(trial.notes)}" if trial.notes else ""
        lines.append(formatting.plain(f"trial {trial.id}{tags}{notes}"))
    if len(labelled) > MOST_LABELLED:
        lines.append(f"and notes or tags of {formatting.count(len(labelled) - MOST_LABELLED, 'more trial')}")
    return lines


def _fixed(trials: Sequence[Row]) -> dict[str, Any]:
    """Parameters that are the same in every trial, when there are several trials."""
    if len(trials) < 2:
        return {}
    first, *peers = trials
    return {
        name: value
        for name, value in first.params.items()
        if all(
            name in trial.params and formatting.value(trial.params[name]) == formatting.value(value) for trial in peers
        )
    }


def varying(trials: Sequence[Row]) -> list[str]:
    """Parameters in which the trials differ, in the order in which they first come; of one trial all."""
    fixed = _fixed(trials)
    return [name for name in names(trial.params for trial in trials) if name not in fixed]


def _leading(result: SweepOutcome, rows: list[Row], limit: int = _CELL_LIMITS[0]) -> list[TableColumn]:
    """The trial's number and one column for each parameter in which trials differ."""
    columns = [TableColumn(_word(result), [str(trial.id) for trial in rows], right=True)]
    for name in varying(_rows(result)):
        cells = [formatting.value(trial.params[name]) if name in trial.params else "" for trial in rows]
        columns.append(
            TableColumn(
                formatting.shorten(formatting.plain(name), limit), [formatting.shorten(cell, limit) for cell in cells]
            )
        )
    return columns


def _metrics(result: SweepOutcome, rows: list[Row]) -> list[TableColumn]:
    columns = []
    for name in metric_names(result):
        write = written_metric(_rows(result), name)
        columns.append(
            TableColumn(
                formatting.shorten(formatting.plain(name), _CELL_LIMITS[0]),
                [measured(row, name, write) if name in row.metrics else "" for row in rows],
                right=True,
            )
        )
    return columns


def written_metric(rows: Iterable[Row], name: str) -> Callable[[float], str]:
    """How all views of a run write this metric: by the values of all its trials or cases."""
    return formatting.number_format(row.metrics[name] for row in rows if name in row.metrics)


def _trailing(rows: list[Row], best: Row | None) -> list[TableColumn]:
    columns = [TableColumn("status", [trial.status.value for trial in rows])]
    columns.append(TableColumn("time", [formatting.duration(trial.seconds) for trial in rows], right=True))
    if best is not None:
        columns.append(TableColumn("", [BEST if trial is best else "" for trial in rows]))
    return columns


def _fitting(result: SweepOutcome, rows: list[Row], width: int) -> list[TableColumn]:
    """As many columns as fit into `width`; parameters share one column when they have no room each."""
    metrics = _metrics(result, rows)
    trailing = _trailing(rows, leader(result))
    candidates = (_leading(result, rows, limit) for limit in _CELL_LIMITS)
    leading = next((columns for columns in candidates if _total([*columns, *metrics[:1], *trailing]) <= width), None)
    if leading is None:
        trial = _leading(result, rows)[0]
        free_width = width - _total([trial, *metrics[:1], *trailing]) - GAP
        leading = [trial, _joined(result, rows, max(_PARAMS_AT_LEAST, free_width))]
    extra: list[TableColumn] = []
    for column in metrics[1:]:
        if _total([*leading, *metrics[:1], *extra, column, *trailing]) <= width:
            extra.append(column)
    return [*leading, *metrics[:1], *extra, *trailing]


def _joined(result: SweepOutcome, rows: list[Row], width: int) -> TableColumn:
    differing = varying(_rows(result))
    cells = [
        formatting.params({name: trial.params[name] for name in differing if name in trial.params}, width)
        for trial in rows
    ]
    return TableColumn("parameters", cells)


def _total(columns: list[TableColumn]) -> int:
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)


def _html_cells(columns: list[TableColumn], number: int | None) -> list[tuple[str, str]]:
    """The cells of row `number`, or the headings."""
    return [
        (column.heading if number is None else column.cells[number], "right" if column.right else "left")
        for column in columns
    ]
