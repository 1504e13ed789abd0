"""All views of a run as one document, which the page shows."""

from collections.abc import Sequence

from msgspec import Struct

from sparktrain.views.report.encoding import Live
from sparktrain.views.report.views.best_history import HistoryView, history_view
from sparktrain.views.report.views.cost_view import CostView, cost_view
from sparktrain.views.report.views.curves_view import Curves, curves_of
from sparktrain.views.report.views.environment_view import EnvironmentView, environment_view
from sparktrain.views.report.views.failures_view import FailuresView, failures_view
from sparktrain.views.report.views.front_view import FrontView, front_view
from sparktrain.views.report.views.headline_view import Headline, headline_of
from sparktrain.views.report.views.importance_view import ImportanceView, importance_view
from sparktrain.views.report.views.parallel_view import ParallelView, parallel_view
from sparktrain.views.report.views.parameter_axes import Axis, axes_of
from sparktrain.views.report.views.run_inputs import RunInputs
from sparktrain.views.report.views.slices_view import SlicesView, slices_view
from sparktrain.views.report.views.timeline_view import TimelineView, stays_of, timeline_view
from sparktrain.views.report.views.trial_ranks import ranked_trials
from sparktrain.views.report.views.trial_rows import TrialRow, trial_rows

VERSION = 1


class Views(Struct, frozen=True, kw_only=True):
    """The views that take longer than the rows."""

    failures: FailuresView
    history: HistoryView | None
    parallel: ParallelView
    importance: ImportanceView
    slices: SlicesView
    curves: tuple[Curves, ...]
    timeline: TimelineView | None
    cost: CostView | None
    front: FrontView | None
    environment: EnvironmentView


class ReportDocument(Struct, frozen=True, kw_only=True):
    """A run as the page shows it. NaN and infinity are null in its JSON."""

    version: int = VERSION
    kind: str = "run"
    made: float
    """When, in seconds since 1970."""
    sparktrain: str
    """The version that has made it."""
    headline: Headline
    trials: tuple[TrialRow, ...]
    views: Views
    live: Live | None = None


def document_of(inputs: RunInputs, sparktrain: str = "", live: Live | None = None) -> ReportDocument:
    """The document of a run. Pure; 10,000 trials with a million reports take some seconds."""
    rows = trial_rows(inputs)
    return ReportDocument(
        made=inputs.now,
        sparktrain=sparktrain,
        headline=headline_of(inputs),
        trials=rows,
        views=views_of(inputs, rows),
        live=live,
    )


def views_of(inputs: RunInputs, rows: tuple[TrialRow, ...]) -> Views:
    """The views of a run with these rows. Pure."""
    mode = inputs.view.spec.mode
    results = sorted((row for row in rows if row.place is not None), key=lambda row: row.place or 0)
    ranked = ranked_trials(rows, inputs.columns, inputs.view.spec.metric, mode)
    axes = axes_of((row.params for row in (ranked or rows)), inputs.leaves)
    importance = importance_view(axes, ranked)
    stays = stays_of(inputs)
    timeline = timeline_view(inputs, stays)
    return Views(
        failures=failures_view(inputs.view.results),
        history=history_view(inputs, rows),
        parallel=parallel_view(_by_importance(axes, importance), results, mode),
        importance=importance,
        slices=slices_view(axes, importance, ranked, mode) if ranked else SlicesView(),
        curves=curves_of(inputs),
        timeline=timeline,
        cost=cost_view(stays, timeline),
        front=front_view(inputs),
        environment=environment_view(inputs),
    )


def _by_importance(axes: Sequence[Axis], importance: ImportanceView) -> tuple[Axis, ...]:
    """The most important parameter is the last axis, beside that of the metric."""
    order = {share.name: place for place, share in enumerate(importance.shares)}
    return tuple(sorted(axes, key=lambda axis: -order.get(axis.name, len(order))))
