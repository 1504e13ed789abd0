"""Parallel coordinates: an axis for each parameter and for the metric, and which trials are drawn through them."""

from collections.abc import Sequence

from msgspec import Struct

from sparktrain.views.report.views.parameter_axes import Axis
from sparktrain.views.report.views.trial_rows import TrialRow
from sparktrain.views.report.views.value_axis import ValueAxis, value_axis


class ParallelView(Struct, frozen=True, omit_defaults=True):
    """Parallel coordinates: the values are those of the rows of trials."""

    axes: tuple[Axis, ...]
    trials: tuple[int, ...]
    """The trials that are drawn, the worst first: the best lies on top."""
    left_out: int = 0
    """Trials with a result that are not drawn."""
    y: ValueAxis | None = None
    """The axis of the metric."""


def parallel_view(axes: tuple[Axis, ...], results: Sequence[TrialRow], mode: str, most: int = 600) -> ParallelView:
    """Of `results`, the best first: the best half of `most`, and an even sample of the others."""
    shown = list(results)
    if len(shown) > most:
        best = shown[: most // 2]
        remainder = shown[most // 2 :]
        stride = len(remainder) / (most - most // 2)
        shown = best + [remainder[int(place * stride)] for place in range(most - most // 2)]
    return ParallelView(
        axes,
        tuple(row.id for row in reversed(shown)),
        len(results) - len(shown),
        value_axis((row.value for row in shown), mode),
    )
