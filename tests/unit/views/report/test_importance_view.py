"""The importance of parameters: from trials enough, stopped ones too, and with its uncertainty."""

import pytest

from sparktrain.views.report.views.importance_view import LEAST_TRIALS, ImportanceView, importance_view
from sparktrain.views.report.views.parameter_axes import axes_of
from sparktrain.views.report.views.slices_view import contours_of, slices_view
from sparktrain.views.report.views.trial_rows import TrialRow
from tests.unit.views.report.rows import ranked, row


def view(rows: list[TrialRow]) -> ImportanceView:
    return importance_view(axes_of(each.params for each in rows), rows)


@pytest.mark.parametrize(
    ("trials", "words"), [(0, "are 0, so 20 more are"), (1, "is 1, so 19 more are"), (19, "are 19, so 1 more is")]
)
def test_few_trials_have_no_importance_and_no_contours(trials: int, words: str) -> None:
    rows = ranked(trials)
    found = view(rows)
    assert found.shares == ()
    assert "at least 20 trials" in found.reason
    assert f"{words} missing" in found.reason
    axes = axes_of(each.params for each in ranked(5))
    slices = slices_view(axes, found, rows, "min")
    assert slices.contours == contours_of(axes, rows) == ()
    assert slices.no_contours == found.reason.replace("importance needs", "contours need")


def test_stopped_trials_count() -> None:
    rows = ranked(34, stopped=20)
    found = view(rows)
    assert (found.trials, found.stopped) == (34, 20)
    assert len(found.shares) == 4
    assert contours_of(axes_of(each.params for each in rows), rows)


@pytest.mark.long
def test_a_share_lies_in_its_interval_which_shrinks_with_more_trials() -> None:
    widths = []
    for trials in (LEAST_TRIALS, 80, 500):
        found = view(ranked(trials))
        assert sum(each.share for each in found.shares) == pytest.approx(1, abs=0.001)
        assert all(0 <= each.low <= each.share <= each.high <= 1 for each in found.shares)
        assert all(each.low < each.high for each in found.shares[:2])
        widths.append(found.shares[0].high - found.shares[0].low)
    assert widths == sorted(widths, reverse=True)
    assert found.sure
    assert [each.name for each in found.shares[:2]] == ["lr", "units"]
    assert not view(ranked(LEAST_TRIALS)).sure


def test_the_same_trials_have_the_same_importance() -> None:
    rows = ranked(40)
    assert view(rows) == view([*rows])


@pytest.mark.long
def test_shares_of_samples_of_a_sweep_resemble_each_other() -> None:
    """Half of the samples of ten trials once differed from each other by 0.8."""
    shares = [next(each.share for each in view(ranked(30, seed)).shares if each.name == "lr") for seed in range(4)]
    assert max(shares) - min(shares) < 0.6


def test_a_terrible_value_changes_nothing() -> None:
    rows = ranked(30)
    terrible = [*rows[:-1], row(29, "succeeded", 1e300, 29, params=rows[-1].params)]
    assert view(terrible).shares == view(rows).shares


def test_a_short_list_of_numbers_is_no_range() -> None:
    rows = [
        row(place, "succeeded", float(place), place, params={"batch": 2 ** (4 + place % 4), "x": float(place)})
        for place in range(40)
    ]
    shares = {each.name: each.share for each in view(rows).shares}
    assert shares["x"] > 0.8


@pytest.mark.parametrize(
    ("params", "reason"),
    [([{"a": 1}] * 30, "no parameter"), ([{"a": place} for place in range(30)], "a alone differs")],
)
def test_one_parameter_is_compared_with_nothing(params: list[dict[str, int]], reason: str) -> None:
    rows = [row(place, "succeeded", float(place), place, params=each) for place, each in enumerate(params)]
    assert reason in view(rows).reason
