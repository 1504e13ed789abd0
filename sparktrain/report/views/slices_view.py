"""The metric over each parameter: which axes, and which trials are drawn as points."""

from collections.abc import Sequence

from msgspec import Struct

from sparktrain.report.views.contour_view import Contour, contours_of
from sparktrain.report.views.importance_view import ImportanceView
from sparktrain.report.views.parameter_axes import Axis
from sparktrain.report.views.trial_rows import TrialRow

MOST_SLICES = 12
MOST_POINTS = 1500


class SlicesView(Struct, frozen=True, omit_defaults=True):
    """Slices and contours: the values are those of the rows of trials."""

    axes: tuple[Axis, ...] = ()
    """The most important parameters first."""
    trials: tuple[int, ...] = ()
    """The trials that are drawn."""
    contours: tuple[Contour, ...] = ()


def slices_view(axes: Sequence[Axis], importance: ImportanceView, rows: Sequence[TrialRow]) -> SlicesView:
    """`rows` are succeeded trials with a finite value. Of more than 1,500, an even sample is drawn."""
    order = {each.name: place for place, each in enumerate(importance.shares)}
    ranked = sorted(axes, key=lambda axis: order.get(axis.name, len(order)))
    stride = max(1.0, len(rows) / MOST_POINTS)
    drawn = tuple(rows[int(place * stride)].id for place in range(min(len(rows), MOST_POINTS)))
    return SlicesView(tuple(ranked[:MOST_SLICES]), drawn, contours_of(ranked, rows))
