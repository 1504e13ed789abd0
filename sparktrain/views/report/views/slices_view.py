"""The metric over each parameter: which axes, and which trials are drawn as points."""

from collections.abc import Sequence

from msgspec import Struct

from sparktrain.views.report.views.contour_view import LEAST_TRIALS, Contour, contours_of
from sparktrain.views.report.views.importance_view import ImportanceView, missing_trials
from sparktrain.views.report.views.parameter_axes import Axis
from sparktrain.views.report.views.trial_rows import TrialRow
from sparktrain.views.report.views.value_axis import ValueAxis, value_axis

MOST_SLICES = 12
MOST_POINTS = 1500


class SlicesView(Struct, frozen=True, omit_defaults=True):
    """Slices and contours: the values are those of the rows of trials."""

    axes: tuple[Axis, ...] = ()
    """The most important parameters first."""
    trials: tuple[int, ...] = ()
    """The trials that are drawn."""
    y: ValueAxis | None = None
    """The axis of the metric."""
    contours: tuple[Contour, ...] = ()
    no_contours: str = ""
    """Why there are no contours; empty where there are, or no two parameters are numbers."""


def slices_view(axes: Sequence[Axis], importance: ImportanceView, ranked: Sequence[TrialRow], mode: str) -> SlicesView:
    """`ranked` are in the order of `ranked_trials`. Of more than 1,500 with a value, an even sample is drawn."""
    order = {share.name: place for place, share in enumerate(importance.shares)}
    important = sorted(axes, key=lambda axis: order.get(axis.name, len(order)))
    rows = sorted((row for row in ranked if row.value is not None), key=lambda row: row.id)
    stride = max(1.0, len(rows) / MOST_POINTS)
    drawn = [rows[int(place * stride)] for place in range(min(len(rows), MOST_POINTS))]
    contours = contours_of(important, ranked)
    pairs = sum(axis.kind == "number" for axis in axes) > 1
    return SlicesView(
        tuple(important[:MOST_SLICES]),
        tuple(row.id for row in drawn),
        value_axis((row.value for row in drawn), mode),
        contours,
        missing_trials("contours need", LEAST_TRIALS, len(ranked)) if pairs and not contours else "",
    )
