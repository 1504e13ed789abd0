"""Bad input of a search is refused before anything starts."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sparktrain as st
from sparktrain.errors import SpecError
from sparktrain.sklearn import search_cv
from sparktrain.sklearn.candidates import candidates_of
from sparktrain.sklearn.search_input import check_callbacks, check_estimator, data_of, scoring_of

X = np.arange(24.0).reshape(12, 2)
Y = np.arange(12) % 2
SPACE = {"C": [1, 2]}


class Forgetful(BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Changes its argument, so that a clone differs."""

    def __init__(self, names: Any = ()) -> None:
        self.names = list(names)

    def fit(self, X: Any, y: Any = None) -> "Forgetful":
        return self


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (LogisticRegression, r"estimator is the class LogisticRegression: pass an object of it"),
        (3, r"estimator is 3 \(int\), an estimator of scikit-learn is expected"),
        (Forgetful(("a",)), "cannot be cloned, and each candidate is a clone"),
    ],
)
def test_what_is_no_estimator_is_refused(estimator: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        check_estimator(estimator)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scoring": "acuracy"}, r"scoring \('acuracy'\) is no scorer of scikit-learn; did you mean 'accuracy'\?"),
        ({"scoring": ["accuracy", "f1_makro"], "refit": False}, r"'f1_makro'\) is no scorer.*did you mean 'f1_macro'"),
        ({"scoring": accuracy_score}, "make_scorer"),
        ({"scoring": 3}, r"scoring is 3 \(int\)"),
        ({"scoring": ["accuracy", "f1"]}, "refit is True with the scores accuracy, f1: name the one that decides"),
        (
            {"scoring": ["accuracy", "f1"], "refit": "acuracy"},
            r"refit \('acuracy'\) must be one of the scores.*did you mean",
        ),
        ({"refit": 3}, "refit is 3"),
        ({"error_score": "nan"}, "error_score is 'nan'.*pass 'raise', or a number"),
        ({"error_score": True}, "error_score is True"),
        ({"return_train_score": 1}, "return_train_score is 1"),
        ({"cv": 1}, r"cv \(1\) cannot split the rows: k-fold cross-validation requires"),
        ({"cv": 7}, r"cv \(7\) cannot split the rows: n_splits=7 cannot be greater than the number of members"),
        ({"cv": []}, r"cv \(\[\]\) has no splits"),
        ({"cv": [([0, 1], [])]}, "the test rows of split 0 of cv are empty"),
        ({"cv": [([0, 1], [2]), ([], [2])]}, "the train rows of split 1 of cv are empty"),
        ({"cv": [([0, 1], [12])]}, "have the number 12, and X has the rows 0 to 11"),
        ({"cv": [([0.5], [1])]}, "a split is a pair of arrays with numbers of rows"),
        ({"cv": "five"}, "cv .'five'. cannot split the rows"),
        ({"cv": GroupKFold(2)}, "cannot split the rows: The 'groups' parameter should not be None"),
        ({"groups": [1, 2]}, "X has 12 rows, y has 12 rows, groups has 2 rows: they must be equally long"),
        ({"y": Y[:-1]}, "X has 12 rows, y has 11 rows: they must be equally long"),
        ({"X": [], "y": []}, "X has no rows"),
        ({"X": None}, "X is None"),
        ({"X": iter([1])}, "pass an array, a sparse matrix, a DataFrame or a list of rows"),
        ({"y": "label"}, "y is the name 'label', and X is ndarray, which has no names"),
        ({"X": pd.DataFrame(X, columns=["a", "b"]), "y": "lable"}, r"y \('lable'\) is no column of X"),
        ({"fit_params": {3: Y}}, "fit_params has the name 3"),
        ({"space": {"c": [1]}}, "the space has 'c', and LogisticRegression has no such parameter"),
        ({"folds": 3}, r"search_cv\(\) has no option folds: pass cv="),
        ({"repeats": 3}, r"search_cv\(\) has no option repeats"),
        ({"data": {}}, r"search_cv\(\) has no option data: X and y"),
        ({"stopper": "asha"}, "stopper asha judges what trials report while they train"),
        ({"stopper": ["wilcoxon", "median"]}, "stopper median"),
        ({"stopper": "asha", "resource": 3}, r"resource is 3 \(int\): pass 'n_samples'"),
        ({"resource": "n_samples"}, "no rule judges fits with little of it: pass stopper='asha'"),
        ({"stopper": "pbt", "resource": "n_samples"}, "continues from checkpoints, and fits save none"),
        ({"stopper": st.ASHA(most=6, promote=True), "resource": "n_samples"}, "continues from checkpoints"),
        ({"stopper": st.ASHA(most=8), "resource": "n_samples"}, r"most \(8\) must be left out.*all 6 rows"),
        ({"stopper": "asha:first=6", "resource": "n_samples"}, r"first \(6\) must be a whole number from 1 and below"),
        ({"stopper": "asha", "resource": "max_itre"}, "a parameter of LogisticRegression; did you mean 'max_iter'"),
        ({"stopper": "asha", "resource": "C"}, r"resource \('C'\) is in the space too"),
        ({"stopper": "asha", "resource": "tol"}, "is 0.0001 .*must be a number to grow to: set it"),
        ({"stopper": "asha", "resource": "max_iter", "estimator": LogisticRegression(max_iter=1)}, "is 1 in all: 2 is"),
        ({"workers_per_trial": 2}, r"workers_per_trial \(2\) must be 1"),
        ({"metric": "a"}, "sklearn.search_cv has no option 'metric'"),
        ({"sampeler": "tpe"}, "has no option 'sampeler'; did you mean 'sampler'"),
        (
            {"scoring": ["accuracy", "f1"], "refit": False, "space": {"C": st.uniform(0, 1)}},
            "a sampler needs a score that decides",
        ),
    ],
)
def test_bad_input_is_refused_before_anything_starts(options: Any, message: str, tmp_path: Any) -> None:
    call: dict[str, Any] = {"space": SPACE, "X": X, "y": Y, "cv": 2, "dir": str(tmp_path), "spark": st.local(slots=1)}
    with pytest.raises(SpecError, match=message):
        search_cv(**{"estimator": LogisticRegression()} | call | options)
    assert list(tmp_path.iterdir()) == []


class Watch:
    """A callback of scikit-learn."""


def watched() -> LogisticRegression:
    estimator = LogisticRegression()
    estimator._skl_callbacks = [Watch()]
    return estimator


@pytest.mark.parametrize(
    ("estimator", "space"),
    [
        (watched(), {"C": [1]}),
        (make_pipeline(StandardScaler(), watched()), {"logisticregression__C": [1]}),
        (make_pipeline(StandardScaler(), LogisticRegression()), {"logisticregression": [watched()]}),
    ],
)
def test_callbacks_that_no_fit_of_another_process_reaches_are_refused(estimator: Any, space: Any) -> None:
    with pytest.raises(
        SpecError, match=r"LogisticRegression has callbacks of scikit-learn \(Watch\).*set_callbacks\(\)"
    ):
        check_callbacks(estimator, candidates_of(space).codes)
    check_callbacks(LogisticRegression(), candidates_of(SPACE).codes)


class Sited(KFold):  # type: ignore[misc] # scikit-learn has no types
    """Splits by what it requests, and by nothing else."""

    def __init__(self) -> None:
        super().__init__(2)

    def split(self, X: Any, y: Any = None, groups: Any = None, *, site: Any = None) -> Any:
        return GroupKFold(2).split(X, y, site)


def test_metadata_goes_to_those_that_request_it() -> None:
    site = np.arange(12) // 3
    weights = np.arange(12.0)
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = Ridge().set_fit_request(sample_weight="weights")
        cv = Sited().set_split_request(site=True)
        data = data_of(X, Y, None, {"weights": weights, "site": site}, cv, estimator)
        assert list(data.fit_params) == ["weights"]
        assert all(not set(site[train]) & set(site[test]) for train, test in data.splits)
        assert list(data_of(X, Y, site, {"weights": weights}, GroupKFold(2), estimator).fit_params) == ["weights"]
        with pytest.raises(SpecError, match=r"have weights, groups, and metadata routing refuses them"):
            data_of(X, Y, site, {"weights": weights}, 2, estimator)
        with pytest.raises(SpecError, match=r"\[sample_weight\] are passed but are not explicitly set as requested"):
            data_of(X, Y, None, {"sample_weight": weights}, 2, Ridge())


def test_an_estimator_without_a_score_needs_scoring() -> None:
    with pytest.raises(SpecError, match="should have a 'score' method"):
        scoring_of(StandardScaler(), None, True)


def test_splits_are_stratified_for_classifiers_alone() -> None:
    classes = np.repeat([0, 1], 6)
    for estimator, splitter in ((LogisticRegression(), StratifiedKFold(3)), (Ridge(), KFold(3))):
        data = data_of(X, classes, None, None, 3, estimator)
        expected = list(splitter.split(X, classes))
        assert [[part.tolist() for part in split] for split in data.splits] == [
            [part.tolist() for part in split] for split in expected
        ]


def test_a_name_takes_the_column_out_of_the_rows() -> None:
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(label=Y, site=np.arange(12) // 3)
    data = data_of(frame, "label", "site", None, GroupKFold(2), Ridge())
    assert list(data.X.columns) == ["a", "b"]
    assert data.y.tolist() == Y.tolist()
    assert all(not set(frame.site[train]) & set(frame.site[test]) for train, test in data.splits)


def test_memory_without_gaps_keeps_its_order_of_axes() -> None:
    assert data_of(np.asfortranarray(X), None, None, None, 2, Ridge()).X.flags.f_contiguous
    assert data_of(X[::2], None, None, None, 2, Ridge()).X.flags.contiguous
