"""What a comparison shows of one run; the page puts several of them beside each other. Pure."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from sparktrain.config.metric_names import implied_by
from sparktrain.views.report.views.best_history import history_view
from sparktrain.views.report.views.environment_view import EnvironmentView, environment_view
from sparktrain.views.report.views.headline_view import Headline, headline_of
from sparktrain.views.report.views.parameter_axes import Axis, axes_of
from sparktrain.views.report.views.report_columns import ReportColumns
from sparktrain.views.report.views.run_inputs import RunInputs
from sparktrain.views.report.views.trial_ranks import ranked_trials
from sparktrain.views.report.views.trial_rows import TrialRow, trial_rows
from sparktrain.views.report.views.value_axis import ValueAxis, lines_axis, value_axis

MOST_POINTS = 160
MOST_METRICS = 8
MOST_STRANDS = 100


class DetailLine(Struct, frozen=True):
    """A line over numbers and over time."""

    at: tuple[int, ...]
    """Steps, or how many trials have ended."""
    seconds: tuple[float | None, ...]
    """Since the trial, or the run, has started."""
    values: tuple[float | None, ...]
    y: ValueAxis | None


class DetailStrand(Struct, frozen=True, omit_defaults=True):
    """A trial with a result, as a line of parallel coordinates."""

    trial: int
    value: float
    params: dict[str, Any]
    best: bool = False


class RunDetail(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run."""

    headline: Headline
    facts: dict[str, str]
    """What the run was made of, by subject and name, such as `versions: numpy`."""
    source: str = ""
    """The digest of the source of the training function; empty where the plan has none."""
    best_params: dict[str, Any] = {}
    history: DetailLine | None = None
    """The best value so far by the trials that have ended."""
    curves: dict[str, DetailLine] = {}
    """What the best trial has reported, by metric."""
    axes: tuple[Axis, ...] = ()
    """Of the parameters that differ between its trials."""
    strands: tuple[DetailStrand, ...] = ()
    """The best trials, and a sample of the others."""
    strands_y: ValueAxis | None = None
    """The axis of their metric."""


def detail_of(inputs: RunInputs) -> tuple[RunDetail, str]:
    """The detail of a run, and the source of its training function. Pure; without the views that take long."""
    rows = trial_rows(inputs)
    headline = headline_of(inputs)
    environment = environment_view(inputs)
    best = None if headline.best is None else next(row for row in rows if row.id == headline.best.trial)
    strands = _strands(rows)
    ranked = ranked_trials(rows, inputs.columns, inputs.view.spec.metric, inputs.view.spec.mode)
    detail = RunDetail(
        headline=headline,
        facts=facts_of(headline, environment),
        source=digest_of(environment.source),
        best_params={} if best is None else best.params,
        history=_history(inputs, rows),
        curves={} if best is None else _curves(inputs, best),
        axes=axes_of((row.params for row in (ranked or rows)), inputs.leaves),
        strands=strands,
        strands_y=value_axis((strand.value for strand in strands), inputs.view.spec.mode),
    )
    return detail, environment.source


def facts_of(headline: Headline, environment: EnvironmentView) -> dict[str, str]:
    """What may differ between runs: not the name and the place of one."""
    facts = {"function": headline.run.function}
    for subject, entries in environment.facts.items():
        if subject != "run":
            facts |= {f"{subject}: {fact.name}": fact.value for fact in entries if fact.name != "name"}
    for dataset in environment.data:
        facts |= {f"data: {dataset.name}": dataset.summary, f"data: {dataset.name}, columns": dataset.columns_text}
    return facts


def digest_of(source: str) -> str:
    """Identifies a source; empty for none."""
    return hashlib.sha256(source.encode()).hexdigest()[:16] if source else ""


def _history(inputs: RunInputs, rows: tuple[TrialRow, ...]) -> DetailLine | None:
    view = history_view(inputs, rows)
    if view is None:
        return None
    ends = {row.id: row.ended for row in rows}
    start = inputs.view.times.started
    chosen = _sample(len(view.trials))
    return DetailLine(
        tuple(place + 1 for place in chosen),
        tuple(_since(start, ends[view.trials[place]]) for place in chosen),
        tuple(view.best[place] for place in chosen),
        value_axis(view.best, inputs.view.spec.mode),
    )


def _since(start: float | None, at: float | None) -> float | None:
    return None if start is None or at is None else round(max(0.0, at - start), 3)


def _curves(inputs: RunInputs, best: TrialRow) -> dict[str, DetailLine]:
    columns = inputs.columns
    modes = {objective.metric: objective.mode for objective in inputs.outcome.objectives}
    names = sorted(columns.metrics, key=lambda name: name != inputs.view.spec.metric)[:MOST_METRICS]
    lines = {}
    for name in names:
        line = _curve(columns, name, best, modes.get(name) or implied_by(name))
        if line is not None:
            lines[name] = line
    return lines


def _curve(columns: ReportColumns, metric: str, best: TrialRow, mode: str | None) -> DetailLine | None:
    mask = (columns.trial == best.id) & np.isfinite(columns.metrics[metric])
    steps = columns.step[mask]
    if not steps.size:
        return None
    values = columns.metrics[metric][mask].tolist()
    times = columns.at[mask].tolist()
    start = times[0] if best.started is None else best.started
    chosen = _sample(len(values))
    line = tuple(float(f"{values[place]:.6g}") for place in chosen)
    return DetailLine(
        tuple(int(steps[place]) for place in chosen),
        tuple(_since(start, times[place]) for place in chosen),
        line,
        lines_axis([line], mode),
    )


def _sample(size: int) -> Sequence[int]:
    """Evenly spaced places, with the last one: the newest value counts most."""
    if size <= MOST_POINTS:
        return range(size)
    return sorted({round(place * (size - 1) / (MOST_POINTS - 1)) for place in range(MOST_POINTS)})


def _strands(rows: Sequence[TrialRow]) -> tuple[DetailStrand, ...]:
    results = sorted((row for row in rows if row.place is not None), key=lambda row: row.place or 0)
    if len(results) > MOST_STRANDS:
        best = results[: MOST_STRANDS // 2]
        remainder = results[MOST_STRANDS // 2 :]
        stride = len(remainder) / (MOST_STRANDS - len(best))
        results = best + [remainder[int(place * stride)] for place in range(MOST_STRANDS - len(best))]
    return tuple(
        DetailStrand(row.id, row.value, row.params, row.place == 0) for row in results if row.value is not None
    )
