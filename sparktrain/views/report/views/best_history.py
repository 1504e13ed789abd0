"""The results of a run in the order in which they came, and the best so far."""

from msgspec import Struct

from sparktrain.views.report.views.run_inputs import RunInputs
from sparktrain.views.report.views.trial_rows import TrialRow
from sparktrain.views.report.views.value_axis import ValueAxis, value_axis


class HistoryView(Struct, frozen=True):
    """One entry in each list for each trial with a finite value of the metric, in the order of their ends."""

    trials: tuple[int, ...]
    values: tuple[float, ...]
    best: tuple[float | None, ...]
    """The best value until then, of the trials that can be the best; None before the first."""
    y: ValueAxis
    """The axis of the metric, for values and best ones."""


def history_view(inputs: RunInputs, rows: tuple[TrialRow, ...]) -> HistoryView | None:
    """None where the run has no metric, or no trial has a value."""
    if inputs.view.spec.metric is None:
        return None
    ended = [row for row in rows if row.value is not None and row.status in ("succeeded", "pruned")]
    ended.sort(key=lambda row: (row.ended or 0.0, row.id))
    if not ended:
        return None
    better = max if inputs.view.spec.mode == "max" else min
    best: list[float | None] = []
    for row in ended:
        previous = best[-1] if best else None
        # A pruned trial has a value and no place: it cannot be the best.
        value = row.value if row.place is not None else None
        candidates = [candidate for candidate in (previous, value) if candidate is not None]
        best.append(better(candidates) if candidates else None)
    values = tuple(row.value for row in ended if row.value is not None)
    axis = value_axis(values, inputs.view.spec.mode)
    assert axis is not None  # the value of a row is finite
    return HistoryView(tuple(row.id for row in ended), values, tuple(best), axis)
