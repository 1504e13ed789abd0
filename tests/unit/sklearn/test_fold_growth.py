"""Fits that grow: which rows they have, and that the last one equals a fit of its own."""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    RepeatedStratifiedKFold,
    StratifiedShuffleSplit,
    TimeSeriesSplit,
)
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import sparktrain as st
from sparktrain.sklearn.fold_growth import FitGrowth, FitRows, nested_order
from sparktrain.sklearn.search_input import data_of, growth_of

X, Y = load_iris(return_X_y=True)
TREES = "n_estimators"


def test_fewer_rows_are_part_of_more_and_have_the_shares_of_the_classes() -> None:
    classes = np.array([0] * 90 + [1] * 8 + [2] * 2)
    train = np.arange(100)
    order = nested_order(train, classes, FitRows.STRATIFIED, 7)
    assert sorted(order) == list(train)
    assert sorted(classes[order[:3]]) == [0, 1, 2]
    for rows in range(3, 101):
        for label, total in enumerate((90, 8, 2)):
            assert abs(np.count_nonzero(classes[order[:rows]] == label) - rows * total / 100) < 2
    np.testing.assert_array_equal(order, nested_order(train, classes, FitRows.STRATIFIED, 7))
    assert not np.array_equal(order, nested_order(train, classes, FitRows.STRATIFIED, 8))


def test_a_random_order_and_the_newest_rows_take_rows_of_the_fold_alone() -> None:
    mask = np.arange(20) % 2 == 0
    assert sorted(nested_order(mask, Y[:20], FitRows.RANDOM, 0)) == list(range(0, 20, 2))
    growth = FitGrowth(resource="n_samples", amounts=(3, 10))
    order = nested_order(mask, None, FitRows.NEWEST, 0)
    steps = list(growth.steps(RandomForestClassifier(), mask, order, is_judged=True))
    assert [step.rows.tolist() for step in steps] == [[14, 16, 18], mask.tolist()]
    assert [step.amount for step in steps] == [3, 10]
    [only] = growth.steps(RandomForestClassifier(), mask, order, is_judged=False)
    assert only.is_last


@pytest.mark.parametrize(
    ("cv", "order"),
    [
        (3, FitRows.STRATIFIED),
        (StratifiedShuffleSplit(2, random_state=0), FitRows.STRATIFIED),
        (RepeatedStratifiedKFold(n_splits=2, n_repeats=2, random_state=0), FitRows.STRATIFIED),
        (KFold(3), FitRows.RANDOM),
        (iter([(np.arange(100), np.arange(100, 150))]), FitRows.RANDOM),
        (TimeSeriesSplit(3), FitRows.NEWEST),
    ],
)
def test_the_splitter_tells_which_rows_a_part_has(cv: Any, order: FitRows) -> None:
    assert data_of(X, Y, None, None, cv, RandomForestClassifier()).order is order


@pytest.mark.parametrize(
    ("estimator", "continues"),
    [
        (RandomForestClassifier(random_state=0), True),
        (ExtraTreesClassifier(random_state=0, bootstrap=True), True),
        (GradientBoostingClassifier(random_state=0, subsample=0.5), True),
        (BaggingClassifier(random_state=0), True),
        (RandomForestClassifier(random_state=np.random.RandomState(0)), False),
        (GradientBoostingClassifier(random_state=0, n_iter_no_change=3), False),
        (AdaBoostClassifier(random_state=0), False),
    ],
)
def test_the_last_fit_has_the_predictions_of_a_fit_of_its_own(estimator: Any, continues: bool) -> None:
    [(train, test)] = StratifiedShuffleSplit(1, test_size=0.4, random_state=1).split(X, Y)
    pipeline = Pipeline([("scale", StandardScaler()), ("trees", estimator.set_params(n_estimators=9))])
    growth = FitGrowth(resource="trees__n_estimators", amounts=(2, 5, 9))
    assert growth.continues(pipeline) == continues
    scores = []
    probabilities = []

    def scored(fitted: Any, rows: Any, labels: Any) -> float:
        probabilities.append(fitted.predict_proba(rows))
        return float(fitted.score(rows, labels))

    def fit(candidate: Any, rows: Any) -> None:
        search = GridSearchCV(candidate, {}, scoring=scored, cv=[(rows, test)], refit=False, error_score="raise")
        scores.append(search.fit(X, Y).cv_results_["mean_test_score"][0])

    fit(pipeline, train)
    for step in growth.steps(pipeline, train, train, is_judged=True):
        fit(pipeline, step.rows)
        assert step.amount == pipeline.get_params()["trees__n_estimators"]
    assert len(scores) == 4
    assert scores[0] == scores[-1]
    np.testing.assert_array_equal(probabilities[0], probabilities[-1])
    assert not np.array_equal(probabilities[1], probabilities[-1])


def test_rules_get_the_amounts_and_the_estimator_all_of_the_resource() -> None:
    data = data_of(X, Y, None, None, 3, RandomForestClassifier())
    choice = growth_of("n_samples", (st.ASHA(eta=2, steps_from=1),), RandomForestClassifier(), (), data)
    assert choice.rules == (st.ASHA(eta=2, most=100),)
    assert choice.growth == FitGrowth(resource="n_samples", amounts=(25, 50, 100))
    choice = growth_of(TREES, (st.Hyperband(most=30, first=5), st.Threshold()), RandomForestClassifier(), (), data)
    assert choice.rules == (st.Hyperband(most=30, first=5), st.Threshold())
    assert choice.growth == FitGrowth(resource=TREES, amounts=(5, 15, 30))
    assert choice.estimator.n_estimators == 30
    choice = growth_of(TREES, (st.Median(),), RandomForestClassifier(), (), data)
    assert choice.growth == FitGrowth(resource=TREES, amounts=(11, 33, 99, 100))
