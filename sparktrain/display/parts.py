"""The parts that all screens share: tables, single lines, metrics and rows of HTML."""

import shlex
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any, TypeVar

from rich.table import Table
from rich.text import Text

from sparktrain.base import formatting
from sparktrain.runs.sweep_outcome import SweepOutcome
from sparktrain.state.trial import TrialStatus

_MOST_WARNINGS = 5
GAP = 2
"""Columns of a terminal between two columns of a table."""
STYLES = {TrialStatus.FAILED: "red", TrialStatus.LOST: "red", TrialStatus.STOPPED: "yellow", TrialStatus.PRUNED: "dim"}

V = TypeVar("V")


def table(*columns: tuple[str, str], header_style: str = "bold") -> Table:
    """A table without lines; each column is its heading and the side to which its cells are aligned."""
    grid = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style=header_style)
    for heading, side in columns:
        grid.add_column(heading, justify="right" if side == "right" else "left", no_wrap=True)
    return grid


def one_line(of: Text) -> Text:
    """`of`, cut where the line ends."""
    of.no_wrap = True
    of.overflow = "ellipsis"
    return of


def and_more(hidden: int) -> Text:
    """The line below a table that leaves out `hidden` rows."""
    return Text(f"and {hidden} more", style="dim")


def metrics(of: Mapping[str, float], writes: Mapping[str, Callable[[float], str]] | None = None) -> str:
    """`accuracy 0.9143, loss 0.2871`; `writes` has how some of them are written, by `formatting.number_format`."""
    writers = writes or {}
    return ", ".join(f"{formatting.plain(name)} {writers.get(name, formatting.number)(of[name])}" for name in of)


def metric_formats(of: Iterable[Mapping[str, float]]) -> dict[str, Callable[[float], str]]:
    """How each metric is written, by its values in all of `of`."""
    values: dict[str, list[float]] = {}
    for metrics_of in of:
        for name, value in metrics_of.items():
            values.setdefault(name, []).append(value)
    return {name: formatting.number_format(column) for name, column in values.items()}


def where_lines(directory: str | None) -> list[str]:
    """Where the results of a run are, and the command that shows them as a page; nothing without a directory."""
    if directory is None:
        return []
    place = formatting.plain(directory)
    return [f"results and logs: {place}", f"as a page: sparktrain report {shlex.quote(place)}"]


def objective_first(of: Mapping[str, V], objective: str | None) -> dict[str, V]:
    """The metrics, the one by which trials are compared first."""
    return {name: of[name] for name in sorted(of, key=lambda name: name != objective)}


def html_row(cells: Iterable[tuple[str, str]], tag: str = "td", style: str = "") -> str:
    """A row of a table in a notebook; each cell is its text, which is escaped, and its side."""
    row = "".join(f'<{tag} style="text-align: {side}">{escape(text)}</{tag}>' for text, side in cells)
    return f'<tr style="{style}">{row}</tr>' if style else f"<tr>{row}</tr>"


def differing_first(params: Mapping[str, Any], differing: Iterable[str]) -> dict[str, Any]:
    """`params`, those in which trials differ first: a line may end before the others."""
    first = set(differing)
    return {name: params[name] for name in sorted(params, key=lambda name: name not in first)}


def warning_lines(result: SweepOutcome) -> list[str]:
    """A line for each warning, once for all trials that share it."""
    trials: dict[str, list[int]] = {}
    if unsaved := [trial for trial in result.trials if trial.unsaved]:
        trials[unsaved[0].unsaved] = [trial.id for trial in unsaved]
    for trial in result.trials:
        for notice in trial.notices:
            trials.setdefault(notice, []).append(trial.id)
    return [_line(text, ids) for text, ids in list(trials.items())[:_MOST_WARNINGS]]


def _line(text: str, trials: list[int]) -> str:
    suffix = f", and {formatting.count(len(trials) - 1, 'other trial')} likewise" if len(trials) > 1 else ""
    return f"warning: trial {trials[0]}: {formatting.plain(text)}{suffix}"
