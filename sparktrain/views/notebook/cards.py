"""Results and pools as HTML for a notebook: small, escaped, and drawn from what is in memory alone.

Nothing here raises, blocks, or reads a store: a cell that ends with a result always shows it.
"""

from collections.abc import Callable, Sequence
from html import escape
from typing import TypeVar

from sparktrain.base import formatting
from sparktrain.base.ids import CHIEF, TrialId
from sparktrain.config.metric_names import implied_by
from sparktrain.display import gang_text, trial_table
from sparktrain.display.parts import objective_first
from sparktrain.runs.sweep_outcome import GangOutcome, SweepOutcome
from sparktrain.runs.trial_result import TrialResult

LARGEST = 100_000
"""Bytes of the HTML of a result. A larger one loses its plot, then its table."""
_TEXT = 40_000
_CURVES = 2
_PLOT = '<div style="margin: 4px 0">{}</div>'

T = TypeVar("T")


def sweep_html(result: SweepOutcome) -> str:
    """The headline, the values of the trials as a plot where there are several, and the table of trials."""
    return _shown(result, trial_table.as_html, lambda: sweep_plot(result), trial_table.headline)


def run_html(result: GangOutcome) -> str:
    """How the run ended, its curves as far as `result.history()` has read them, and a table of its members."""
    return _shown(result, gang_text.run_html, lambda: run_plot(result), lambda outcome: gang_text.run_lines(outcome)[0])


def sweep_plot(result: SweepOutcome) -> str:
    """The metric of each trial, and the best so far, as a small SVG; empty unless two trials have a finite one."""
    from sparktrain.views.notebook import charts  # few programs that load results draw them
    from sparktrain.views.notebook.axes import finite
    from sparktrain.views.report.views.value_axis import value_axis

    metric = result.metric
    if metric is None:
        return ""
    trials = [trial for trial in result.trials if finite([trial.metrics.get(metric)])]
    if len(trials) < 2:
        return ""
    best = _leaders(result, metric)
    values = charts.spread(
        [charts.Value(trial.id, trial.metrics[metric], status=trial.status.value) for trial in trials],
        {int(at) for at, _ in best},
    )
    by_id = {trial.id: trial for trial in trials}
    shown = charts.spread(values, {int(trial) for trial, _ in best})
    annotated = [value._replace(note=_note(by_id[TrialId(value.at)], value.value)) for value in shown]
    axis = value_axis((value.value for value in values), result.mode)
    return charts.history(annotated, best, ("trial", metric), axis, charts.SMALL)


def run_plot(result: GangOutcome) -> str:
    """The chief's first reported metrics by step, each as a small SVG; empty unless its reports are in memory."""
    if result._files is None or result.trial is None:
        return ""
    points: dict[str, list[tuple[float, float]]] = {}
    for row in result._files.cached_reports(result.trial.id):
        for name, value in row.metrics.items() if row.rank == CHIEF else ():
            points.setdefault(name, []).append((row.step, float(value)))
    first = objective_first(points, next(iter(result.metrics), None))
    curves = [(name, of) for name, of in first.items() if len(of) > 1]
    return "".join(_curve(name, of) for name, of in curves[:_CURVES])


def _curve(metric: str, points: Sequence[tuple[float, float]]) -> str:
    from sparktrain.views.notebook import charts
    from sparktrain.views.report.views.value_axis import lines_axis

    axis = lines_axis([[value for _, value in points]], implied_by(metric))
    return charts.curves([charts.Curve(metric, points)], None, ("step", metric), axis, charts.SMALL)


def _note(trial: TrialResult, value: float) -> str:
    return f"trial {trial.id}: {formatting.number(value)}  {formatting.params(trial.params, 60)}"


def _leaders(result: SweepOutcome, metric: str) -> list[tuple[float, float]]:
    """The trials that were better than all with lower numbers, among those that may be the best."""
    sign = -1.0 if result.mode == "min" else 1.0
    best: list[tuple[float, float]] = []
    for trial in sorted(result.ranked, key=lambda candidate: candidate.id):
        value = trial.metrics[metric]
        if not best or sign * value > sign * best[-1][1]:
            best.append((trial.id, value))
    return best


def _shown(result: T, html: Callable[[T], str], plot: Callable[[], str], first: Callable[[T], str]) -> str:
    """The table with its plot below the headline; of what is too large or fails, what is left."""
    table = _tried(lambda: html(result))
    drawn = _tried(plot)
    if table and drawn:
        headline, _, body = table.partition("</p>\n")
        joined = f"{headline}</p>\n{_PLOT.format(drawn)}\n{body}"
        table = joined if _fits(joined) else table
    if table and _fits(table):
        return table
    line = _tried(lambda: formatting.shorten(first(result), 2_000)) or type(result).__name__
    words = _tried(lambda: str(result)[:_TEXT]) if table else ""
    return f"<div>\n<p><b>{escape(line)}</b></p>\n{_PLOT.format(drawn)}\n<pre>{escape(words)[:_TEXT]}</pre>\n</div>"


def _fits(page: str) -> bool:
    return len(page.encode("utf-8", "replace")) <= LARGEST


def _tried(make: Callable[[], str]) -> str:
    """What `make` returns; nothing where it raises, such as for a parameter with a `__str__` that does."""
    try:
        return make()
    except Exception:
        return ""
