"""The order of all trials: those that a rule has stopped take the place that they had at their last step."""

from sparktrain.views.report.views.report_columns import ReportColumns
from sparktrain.views.report.views.trial_ranks import MOST_TRIALS, ranked_trials
from tests.unit.views.report.rows import columns, row


def order(*rows: object, curves: ReportColumns | None = None, mode: str = "min") -> list[int]:
    return [each.id for each in ranked_trials(rows, curves or ReportColumns(), "loss", mode)]  # type: ignore[arg-type]


def test_a_stopped_trial_is_compared_at_its_last_step() -> None:
    rows = [
        row(0, "succeeded", 0.1, 0, step=4),
        row(1, "succeeded", 0.5, 1, step=4),
        row(2, "pruned", 0.6, step=2),  # at step 2 it was between both
        row(3, "pruned", 0.95, step=1),  # the worst at step 1
        row(4, "pruned", 0.7, step=1),  # at step 1 only trial 0 was better
    ]
    curves = {0: [0.6, 0.4, 0.2, 0.1], 1: [0.9, 0.8, 0.6, 0.5], 2: [0.8, 0.6], 3: [0.95], 4: [0.7]}
    assert order(*rows, curves=columns(curves)) == [0, 4, 2, 1, 3]


def test_a_greater_metric_may_be_better() -> None:
    rows = [row(0, "succeeded", 0.9, 0, step=2), row(1, "succeeded", 0.2, 1, step=2), row(2, "pruned", 0.4, step=1)]
    assert order(*rows, curves=columns({0: [0.5, 0.9], 1: [0.1, 0.2], 2: [0.4]}), mode="max") == [0, 2, 1]


def test_without_reports_stopped_trials_follow_those_that_came_further() -> None:
    rows = [row(0, "pruned", 0.01, step=1), row(1, "succeeded", 0.9, 0, step=9), row(2, "pruned", 0.5, step=3)]
    assert order(*rows) == [1, 2, 0]


def test_a_trial_that_diverged_is_the_last_and_others_without_a_value_are_none() -> None:
    rows = [
        row(0, "failed", None),  # its metric was NaN
        row(1, "succeeded", 0.5, 0),
        row(2, "succeeded", 0.4),  # it breaks a constraint
        row(3, "pruned", None),
        row(4, "running", 0.1),
    ]
    lost = row(5, "lost", None).__class__(id=5, status="lost")
    broken = row(6, "failed", None).__class__(id=6, status="failed")
    assert order(*rows, lost, broken) == [1, 0, 3]
    assert ranked_trials(rows, ReportColumns(), None, "min") == ()


def test_of_many_trials_an_even_sample_is_in_order() -> None:
    rows = [row(trial, "succeeded", float(trial), trial) for trial in range(3 * MOST_TRIALS)]
    found = order(*rows)
    assert len(found) == MOST_TRIALS
    assert found == sorted(found)
