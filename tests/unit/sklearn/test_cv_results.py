"""`cv_results_` from the trials of a sweep, without a run."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sparktrain.results.sweep_result import SweepResult
from sparktrain.runs.sweep_outcome import SweepStatus
from sparktrain.runs.trial_result import TrialResult
from sparktrain.sklearn.candidates import Codes
from sparktrain.sklearn.cv_results import fold_table, results_of
from sparktrain.sklearn.search_result import SearchResult
from sparktrain.state.trial import TrialStatus


def trial(number: int, C: float, score: float | None) -> TrialResult:
    metrics = {} if score is None else {"test_score": score, "fit_time": 0.5, "score_time": 0.25}
    status = TrialStatus.PRUNED if score is None else TrialStatus.SUCCEEDED
    return TrialResult(id=number, params={"C": C}, status=status, metrics=metrics, fold=number % 2)  # type: ignore[arg-type] # ids are numbers


def sweep(*scores: float | None) -> SweepResult:
    trials = tuple(trial(number, float(number // 2), score) for number, score in enumerate(scores))
    return SweepResult(name="s", status=SweepStatus.SUCCEEDED, trials=trials, folds=2, metric="test_score", mode="max")


def results(*scores: float | None) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return results_of(fold_table(sweep(*scores), Codes(), ["score"]), with_train=False)


def test_the_keys_and_numbers_of_two_candidates() -> None:
    table = results(0.5, 0.7, 0.75, 0.25)
    assert list(table) == [
        "mean_fit_time", "std_fit_time", "mean_score_time", "std_score_time", "param_C", "params",
        "split0_test_score", "split1_test_score", "mean_test_score", "std_test_score", "rank_test_score",
    ]  # fmt: skip
    assert table["split1_test_score"].tolist() == [0.7, 0.25]
    assert table["mean_test_score"].tolist() == [0.6, 0.5]
    assert table["std_test_score"].tolist() == pytest.approx([0.1, 0.25])
    assert table["rank_test_score"].tolist() == [1, 2]
    assert table["rank_test_score"].dtype == np.int32
    assert table["mean_fit_time"].tolist() == [0.5, 0.5]


def test_a_candidate_that_lacks_a_fold_is_last_and_equal_means_share_a_rank() -> None:
    table = results(0.9, None, 0.5, 0.5, 0.5, 0.5, 0.6, 0.6)
    assert np.isnan(table["mean_test_score"]).tolist() == [True, False, False, False]
    assert table["rank_test_score"].tolist() == [4, 2, 2, 1]


def test_without_any_score_all_rank_first_and_a_warning_says_so() -> None:
    with pytest.warns(UserWarning, match="One or more of the test scores are non-finite"):
        table = results_of(fold_table(sweep(np.nan, 0.5), Codes(), ["score"]), with_train=False)
    assert table["rank_test_score"].tolist() == [1]


def test_scores_with_a_part_of_a_resource_are_shown_and_count_in_no_mean() -> None:
    whole = [trial(number, 0.0, 0.5) for number in range(2)]
    part = trial(2, 1.0, 0.9)
    part = replace(part, status=TrialStatus.PRUNED, metrics=part.metrics | {"n_resources": 30.0})
    whole = [replace(fit, metrics=fit.metrics | {"n_resources": 90.0}) for fit in whole]
    pruned = replace(sweep(0.5, 0.5, 0.9, None), trials=(*whole, part, trial(3, 1.0, None)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = results_of(fold_table(pruned, Codes(), ["score"]), with_train=False)
    assert table["split0_test_score"].tolist() == [0.5, 0.9]
    assert np.isnan(table["mean_test_score"]).tolist() == [False, True]
    assert table["rank_test_score"].tolist() == [1, 2]
    assert table["n_resources"].tolist() == [90, 30]


def test_a_result_without_a_deciding_score_says_what_is_missing() -> None:
    result = SearchResult(sweep=sweep(0.5, 0.7), cv_results_=results(0.5, 0.7), n_splits_=2, multimetric_=True)
    for name in ("best_params_", "best_score_"):
        with pytest.raises(AttributeError, match=f"there is no {name}: name the score"):
            getattr(result, name)
    for name in ("best_estimator_", "classes_"):
        with pytest.raises(AttributeError, match="refit is False"):
            getattr(result, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = result.nothing
    assert "1 candidates x 2 splits" in repr(result)
