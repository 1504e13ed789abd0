"""Searches of scikit-learn estimators on the slots of this machine, beside GridSearchCV on the same rows."""

import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.exceptions import FitFailedWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import make_scorer, mean_squared_error
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, ShuffleSplit
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import sparktrain as st
from sparktrain.errors import NoBestTrialError, ResumeError, RunDirectoryError, SpecError
from sparktrain.sklearn import SearchResult, search_cv
from sparktrain.state.records import TrialConcluded
from sparktrain.training import judgement
from tests.support import sklearn_driver
from tests.support.mortal import Mortal
from tests.support.processes import wait_until

IRIS: Any = load_iris(return_X_y=True)


AGENTS = 2, "sklearn", "pyarrow"
"""Two warm agents for all tests of the file: no test measures their start."""


@pytest.fixture
def search(pool: st.Pool, tmp_path: Path) -> Any:
    """`search_cv` on warm agents, in a folder of the test."""

    def call(*args: Any, **options: Any) -> SearchResult:
        return search_cv(*args, **{"pool": pool, "dir": str(tmp_path / "runs"), "progress": False, **options})

    return call


def check_same(ours: SearchResult, theirs: Any) -> None:
    """Check that all but the times are those of GridSearchCV, to the last bit."""
    assert list(ours.cv_results_) == list(theirs.cv_results_)
    for key, expected in theirs.cv_results_.items():
        values = ours.cv_results_[key]
        if key.endswith("_time"):
            assert np.isfinite(values).all()
            assert (values >= 0).all()
        elif key == "params":
            assert [repr(params) for params in values] == [repr(params) for params in expected]
        elif key.startswith("param_"):
            assert values.dtype == expected.dtype
            assert values.mask.tolist() == expected.mask.tolist()
            assert repr(values.tolist()) == repr(expected.tolist())
        else:
            assert values.dtype == expected.dtype
            np.testing.assert_array_equal(values, expected)
    assert ours.n_splits_ == theirs.n_splits_
    assert ours.multimetric_ == theirs.multimetric_
    assert repr(ours.best_params_) == repr(theirs.best_params_)
    assert ours.best_index_ == theirs.best_index_


def test_a_pipeline_has_the_scores_of_grid_search_to_the_last_bit(search: Any) -> None:
    X, y = IRIS
    pipeline = Pipeline([("scale", StandardScaler()), ("svc", SVC(random_state=0))])
    space = {"svc__C": [0.1, 10], "svc__kernel": ["rbf"], "scale": [StandardScaler(), "passthrough"]}
    ours = search(pipeline, space, X, y, cv=3, return_train_score=True, name="p")
    theirs = GridSearchCV(pipeline, space, cv=3, return_train_score=True).fit(X, y)
    check_same(ours, theirs)
    assert ours.best_score_ == theirs.best_score_
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    np.testing.assert_array_equal(ours.decision_function(X), theirs.decision_function(X))
    assert ours.score(X, y) == theirs.score(X, y)
    assert ours.refit_time_ is not None
    assert len(ours.sweep.trials) == 12
    assert {trial.status for trial in ours.sweep.trials} == {"succeeded"}
    assert len({trial.log for trial in ours.sweep.trials}) == 12
    assert ours.refit is not None
    assert ours.refit.model_path is not None
    assert ours.refit.model_path.endswith("model.skops")
    with pytest.raises(AttributeError, match="predict_proba"):
        _ = ours.predict_proba
    again = search(pipeline, space, X, y, cv=3, return_train_score=True, name="p")
    np.testing.assert_array_equal(again.cv_results_["mean_fit_time"], ours.cv_results_["mean_fit_time"])
    assert again.refit_time_ == ours.refit_time_
    with pytest.raises(ResumeError, match="was started with other data"):
        search(pipeline, space, X[::-1], y[::-1], cv=3, return_train_score=True, name="p")


def test_data_frames_several_scores_and_a_grid_for_each_estimator(search: Any) -> None:
    X, y = IRIS
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    frame["kind"] = pd.Categorical(np.where(X[:, 0] > 5.5, "long", "short"))
    frame["text"] = np.where(X[:, 1] > 3, "wide", "narrow")
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["kind", "text"]), remainder="passthrough"
    )
    pipeline = Pipeline([("columns", columns), ("scale", StandardScaler()), ("model", SVC())])
    space = [
        {"model": [LogisticRegression(max_iter=1000)], "model__C": [1.0, np.float64(2.0)]},
        {"model": [SVC(), DecisionTreeClassifier(random_state=1)], "columns__remainder": [MinMaxScaler()]},
    ]
    scoring = ["accuracy", "f1_macro"]
    splits = {"cv": KFold(3, shuffle=True, random_state=1), "scoring": scoring, "refit": "f1_macro"}
    ours = search(pipeline, space, frame.assign(label=y), "label", **splits)
    theirs = GridSearchCV(pipeline, space, **splits).fit(frame, y)
    check_same(ours, theirs)
    assert ours.best_score_ == theirs.best_score_
    assert list(ours.feature_names_in_) == list(frame.columns)
    np.testing.assert_array_equal(ours.predict(frame), theirs.predict(frame))


def test_sparse_rows_groups_weights_and_a_sampled_space(search: Any, tmp_path: Path) -> None:
    X, y = IRIS
    rows = sp.csr_matrix(np.asfortranarray(X))
    groups = np.arange(len(y)) % 5
    weights = np.linspace(0.1, 1, len(y))
    ours = search(
        Ridge(), {"alpha": st.loguniform(0.01, 10), "fit_intercept": [True, False]}, rows, y, cv=GroupKFold(5),
        groups=groups, fit_params={"sample_weight": weights}, trials=4, sampler="random", seed=1, refit=False,
        scoring=make_scorer(mean_squared_error, greater_is_better=False), name="sampled",
    )  # fmt: skip
    candidates = ours.cv_results_["params"]
    assert len({repr(params) for params in candidates}) == 4
    theirs = GridSearchCV(
        Ridge(), [{name: [value] for name, value in params.items()} for params in candidates], cv=GroupKFold(5),
        scoring=make_scorer(mean_squared_error, greater_is_better=False), refit=False,
    ).fit(rows, y, groups=groups, sample_weight=weights)  # fmt: skip
    for key in ("split4_test_score", "mean_test_score", "std_test_score", "rank_test_score"):
        np.testing.assert_array_equal(ours.cv_results_[key], theirs.cv_results_[key])
    assert ours.refit is None
    with pytest.raises(AttributeError, match="refit is False"):
        ours.predict(rows)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()) == ["sampled"]


class Picky(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Fails to fit with depth 3, and shows the memory that its rows come from."""

    def __init__(self, depth: int = 1) -> None:
        self.depth = depth

    def fit(self, X: Any, y: Any) -> "Picky":
        if self.depth == 3:
            raise ValueError(f"no tree has {self.depth} levels")
        self.classes_ = np.unique(y)
        self.tree_ = DecisionTreeClassifier(max_depth=self.depth, random_state=0).fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        return self.tree_.predict(X)


def torn(estimator: Any, X: Any, y: Any) -> float:
    """A scorer that is NaN for some estimators, and raises for others."""
    if estimator.depth == 4:
        raise RuntimeError("no score")
    return float("nan") if estimator.depth == 2 else float(estimator.score(X, y))


def accuracy(estimator: Any, X: Any, y: Any) -> float:
    return float(estimator.score(X, y))


def test_a_fit_or_a_scorer_that_fails_has_the_error_score(search: Any) -> None:
    X, y = IRIS
    scoring = {"torn": torn, "accuracy": accuracy}
    call: dict[str, Any] = {"cv": ShuffleSplit(2, random_state=0), "scoring": scoring, "refit": "torn"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = GridSearchCV(Picky(), {"depth": [1, 2, 3, 4, 5]}, **call).fit(X, y)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        ours = search(Picky(), {"depth": [1, 2, 3, 4, 5]}, X, y, **call)
    assert [str(warning.message)[:20] for warning in warned if warning.category is FitFailedWarning] == [
        "2 fits of 10 failed,"
    ]
    check_same(ours, theirs)
    assert np.isnan(ours.cv_results_["mean_test_torn"]).tolist() == [False, True, True, True, False]
    assert sorted(set(ours.sweep.failures()["error"])) == [
        "ScorerError: the score 'torn' is nan",
        "ScorerError: the scorer 'torn' raised: RuntimeError: no score",
        "ValueError: no tree has 3 levels",
    ]
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


@pytest.mark.all(
    case="other values of `error_score`", covered_by="`nan`, and `unit/sklearn`: the check of the argument"
)
def test_a_number_as_error_score_counts_and_raise_ends_the_search(search: Any) -> None:
    X, y = IRIS
    with pytest.warns(FitFailedWarning, match="their scores are -1"):
        ours = search(Picky(), {"depth": [3, 1]}, X, y, cv=2, error_score=-1, refit=False)
    assert ours.cv_results_["split0_test_score"].tolist()[0] == -1
    assert ours.best_params_ == {"depth": 1}
    with pytest.raises(NoBestTrialError, match="no tree has 3 levels"):
        search(Picky(), {"depth": [1, 3]}, X, y, cv=2, error_score="raise")
    with pytest.raises(NoBestTrialError, match="no tree has 3 levels"):
        search(Picky(), {"depth": [3]}, X, y, cv=2)


def test_where_each_fit_fails_the_error_is_that_of_the_first_with_its_log(search: Any) -> None:
    X, y = IRIS
    words = (
        r"all 2 fits of .* failed: trial 0 raised ValueError: no tree has 3 levels, and its log is .*/0000/.*log\.txt"
    )
    with pytest.raises(NoBestTrialError, match=words):
        search(Picky(), {"depth": [3]}, X, y, cv=2, error_score=0)
    with pytest.raises(NoBestTrialError, match=words):
        search(Picky(), {"depth": [3]}, X, y, cv=2, scoring=["accuracy", "f1_macro"], refit=False)


def test_scores_have_the_weights_that_they_request(search: Any) -> None:
    X, y = IRIS
    weights = np.random.default_rng(0).uniform(0.1, 5, len(y))
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(max_iter=20).set_fit_request(sample_weight=True)
        pipeline = Pipeline(
            [
                ("scale", StandardScaler().set_fit_request(sample_weight=False)),
                ("model", model.set_score_request(sample_weight=True)),
            ]
        )
        renamed = LogisticRegression(max_iter=20).set_fit_request(sample_weight="w")
        scorer = make_scorer(mean_squared_error, greater_is_better=False).set_score_request(sample_weight="w")
        scorers = {"mse": scorer, "accuracy": "accuracy"}
        for estimator, name, options in (
            (pipeline, "sample_weight", {}),
            (renamed, "w", {"scoring": scorers, "refit": "mse"}),
        ):
            space = {"model__C" if estimator is pipeline else "C": [0.01, 1.0]}
            ours = search(estimator, space, X, y, cv=3, fit_params={name: weights}, name=name, **options)
            theirs = GridSearchCV(estimator, space, cv=3, **options).fit(X, y, **{name: weights})
            check_same(ours, theirs)
            np.testing.assert_array_equal(ours.predict_proba(X), theirs.predict_proba(X))
            if estimator is pipeline:
                assert ours.score(X, y, sample_weight=weights) == theirs.score(X, y, sample_weight=weights)
    with pytest.raises(SpecError, match=r"score\(\) has the arguments w, which need metadata routing"):
        ours.score(X, y, w=weights)


class Shifted(BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """A transformer of this file."""

    def fit(self, X: Any, y: Any = None) -> "Shifted":
        self.shift_ = X.mean(axis=0)
        return self

    def transform(self, X: Any) -> Any:
        return X - self.shift_


@pytest.mark.parametrize(
    "first", [SimpleImputer(), FunctionTransformer(lambda rows: rows * 2), Shifted()], ids=["skops", "lambda", "class"]
)
def test_the_best_estimator_is_loaded_as_its_member_has_stored_it(search: Any, first: Any) -> None:
    X, y = IRIS
    pipeline = Pipeline([("first", first), ("tree", DecisionTreeClassifier(random_state=0))])
    ours = search(pipeline, {"tree__max_depth": [2]}, X, y, cv=2, name="best")
    theirs = pipeline.set_params(tree__max_depth=2).fit(X, y)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    assert ours.refit is not None
    later = st.load(ours.refit.directory)
    np.testing.assert_array_equal(later.load_model().predict(X), theirs.predict(X))
    model = Path(ours.refit.model_path)
    model.write_bytes(model.read_bytes() + b" ")
    for result in (ours, ours.refit, later):
        with pytest.raises(RunDirectoryError, match="is not what the trial has exported"):
            result.load_model()


class Mapped(BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Scores by the file that the rows are mapped from."""

    def __init__(self, number: int = 0) -> None:
        self.number = number

    def fit(self, X: Any, y: Any = None) -> "Mapped":
        return self

    def score(self, X: Any, y: Any = None) -> float:
        maps = Path("/proc/self/maps").read_text().splitlines()
        return float(sum(".arrow" in line and "sparktrain-data" in line and " r--" in line for line in maps))


def test_trials_map_the_rows_from_one_file_and_racing_skips_folds(search: Any, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(150_000, 2))
    cache = tmp_path / "cache"
    ours = search(Mapped(), {"number": [0, 1]}, X, cv=2, data_cache=str(cache), refit=False)
    assert (ours.cv_results_["mean_test_score"] >= 1).all()
    [file] = cache.rglob("*.arrow")
    assert os.path.getsize(file) > X.nbytes
    X, y = IRIS
    raced = search(
        DecisionTreeClassifier(random_state=0), {"max_depth": [5, 4, 1, 1, 1, 1]}, X, y, cv=10, racing=True, refit=False
    )
    statuses = Counter(trial.status for trial in raced.sweep.trials)
    assert statuses["pruned"] > 10
    assert np.isnan(raced.cv_results_["mean_test_score"]).sum() > 1
    assert np.isfinite(raced.cv_results_["mean_test_score"][raced.best_index_])


class Growing(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """A tree that takes 40 ms of a core; its members wait until a rule has judged it, however busy the machine is.

    Those of depth 1 wait until both trees of depth 3 have all their rows, because the rule never stops the first.
    """

    def __init__(self, max_depth: int = 1, driver: int = 0, folder: str = "") -> None:
        self.max_depth = max_depth
        self.driver = driver
        self.folder = folder

    def fit(self, X: Any, y: Any) -> "Growing":
        if os.getpid() != self.driver:
            judgement.SHARE, judgement.MOST_S = 1000.0, 30.0
            if self.max_depth == 1:
                wait_until(lambda: len(list(Path(self.folder).glob("complete-*"))) == 2, 60, "the trees of depth 3")
            elif len(X) == 75:
                Path(self.folder, f"complete-{os.getpid()}").touch()
        until = time.process_time() + 0.04
        while time.process_time() < until:
            self.tree_ = DecisionTreeClassifier(max_depth=self.max_depth, random_state=0).fit(X, y)
        self.classes_ = np.unique(y)
        self.rows_ = len(X)
        return self

    def predict(self, X: Any) -> Any:
        return self.tree_.predict(X)


def test_a_rule_ends_candidates_by_fits_to_some_rows_and_the_last_fits_have_all(search: Any, tmp_path: Path) -> None:
    X, y = IRIS
    space = {"max_depth": [3, 1, 1, 1, 1, 1]}
    estimator = Growing(driver=os.getpid(), folder=str(tmp_path))
    ours = search(estimator, space, X, y, cv=2, stopper=st.ASHA(eta=3), resource="n_samples")
    theirs = GridSearchCV(estimator, space, cv=2).fit(X, y)
    reached = ours.cv_results_["n_resources"]
    complete = np.isfinite(ours.cv_results_["mean_test_score"])
    assert reached[complete].tolist() == [75] * np.count_nonzero(complete)
    assert complete[0]
    assert set(reached[~complete]) <= {8, 24}
    assert not complete[3:].any()
    for key in ("split0_test_score", "split1_test_score", "mean_test_score", "std_test_score"):
        np.testing.assert_array_equal(ours.cv_results_[key][complete], theirs.cv_results_[key][complete])
    assert ours.best_params_ == theirs.best_params_
    assert ours.best_estimator_.rows_ == 150
    judged = ours.sweep.trials[6]
    assert judged.status == "pruned"
    assert "asha(most=75)" in judged.pruned


FORKS = """
import os, threading
import numpy as np
import pyarrow, sparktrain.sklearn.fold_fit, sparktrain.training.data.open_data

tasks = len(os.listdir("/proc/self/task"))
import sparktrain.sklearn.fold_rehearsal

assert len(os.listdir("/proc/self/task")) == tasks
assert threading.active_count() == 1
from sklearn.ensemble import HistGradientBoostingClassifier

X = np.random.default_rng(0).normal(size=(500, 4))
for _ in range(3):
    if not (child := os.fork()):
        HistGradientBoostingClassifier(max_iter=3).fit(X, X[:, 0] > 0)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


def test_a_zygote_that_has_rehearsed_starts_no_thread_and_its_children_use_openmp() -> None:
    subprocess.run([sys.executable, "-c", FORKS], check=True, timeout=60)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Mortal]:
    (tmp_path / "hold").touch()
    driver = Mortal("tests.support.sklearn_driver:search", tmp_path, "tests.support.local_driver")
    yield driver
    driver.close()


def fits(folder: Path) -> Counter[str]:
    """How often each candidate was fitted to the rows of each fold."""
    return Counter(path.name.rpartition("-")[0] for path in folder.glob("fit-*"))


def test_a_search_resumes_after_its_driver_was_killed(tmp_path: Path, driver: Mortal) -> None:
    def stored() -> int:
        return sum(isinstance(record, TrialConcluded) for record in driver.journal().records)

    driver.start().wait(lambda: stored() == 3, "three fits in the journal")
    driver.strike("python")
    driver.wait_end()
    first = fits(tmp_path)
    assert len(first) == 3
    (tmp_path / "hold").unlink()
    result = sklearn_driver.search(tmp_path)  # in another process
    assert {name: fits(tmp_path)[name] for name in first} == dict.fromkeys(first, 1)
    assert len(fits(tmp_path)) == 13, "four candidates on three folds, and the best one on all rows"
    assert result["scores"] == result["expected"]
    assert result["predicted"] == result["expected_predictions"]
