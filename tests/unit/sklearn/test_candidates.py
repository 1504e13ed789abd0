"""Candidates of a search: their order, the codes of objects, and spaces that are none."""

from typing import Any

import numpy as np
import pytest
import scipy.stats
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import sparktrain as st
from sparktrain.errors import SpecError
from sparktrain.search.space import ListedSpace
from sparktrain.sklearn.candidates import candidates_of, check_names

PIPELINE = Pipeline([("scale", StandardScaler()), ("clf", SVC())])


def listed(space: object) -> list[dict[str, Any]]:
    candidates = candidates_of(space)
    assert isinstance(candidates.space, ListedSpace)
    return [candidates.codes.params(coded) for coded in candidates.space]


@pytest.mark.parametrize(
    "space",
    [
        {"b": [1, 2], "a": ["x", "y"]},
        {"b": (1, 2.5, None, True)},
        {"b": np.array([0.1, 0.2])},
        [{"a": [1, 2]}, {"b": ["x"], "a": [3]}],
        {"hidden": [(50,), (100, 50)], "weights": [{0: 1, 1: 2}, "balanced"]},
    ],
)
def test_candidates_are_those_of_a_parameter_grid(space: Any) -> None:
    assert listed(space) == list(ParameterGrid(space))
    assert [list(map(type, params.values())) for params in listed(space)] == [
        list(map(type, params.values())) for params in ParameterGrid(space)
    ]


def test_a_sweep_gets_plain_values_and_a_fit_gets_the_objects() -> None:
    svc = SVC(C=2)
    twin = SVC(C=2)
    scaler = StandardScaler()
    candidates = candidates_of({"clf": [svc, twin, "passthrough", "SVC(C=2)"], "scale": [scaler, np.float32(0.5)]})
    coded = list(candidates.space.examples())
    assert [params["clf"] for params in coded[::2]] == ["SVC(C=2) #2", "SVC(C=2) #3", "passthrough", "SVC(C=2)"]
    assert [params["scale"] for params in coded[:2]] == ["StandardScaler()", 0.5]
    decoded = [candidates.codes.params(params) for params in coded]
    assert decoded[0]["clf"] is svc
    assert decoded[2]["clf"] is twin
    assert decoded[6] == {"clf": "SVC(C=2)", "scale": scaler}
    assert isinstance(decoded[1]["scale"], np.float32)


def test_numbers_and_booleans_that_are_equal_stay_apart() -> None:
    values = [1, True, 1.0, np.int64(1), 0, False]
    decoded = [params["x"] for params in listed({"x": values})]
    assert decoded == values
    assert [type(value) for value in decoded[:3]] == [int, bool, float]


def test_not_a_number_and_large_integers_are_values_too() -> None:
    nan, large = (params["x"] for params in listed({"x": [float("nan"), 2**70]}))
    assert np.isnan(nan)
    assert large == 2**70


def test_distributions_of_scipy_and_lists_of_objects_become_a_sampled_space() -> None:
    space = {
        "C": scipy.stats.loguniform(1e-2, 10),
        "degree": scipy.stats.randint(1, 5),
        "gamma": scipy.stats.uniform(1, 2),
        "clf": [SVC(), LogisticRegression()],
        "tol": st.uniform(0, 1),
    }
    candidates = candidates_of(space)
    assert not isinstance(candidates.space, ListedSpace)
    text = str(candidates.space)
    assert candidates.space.names == ("C", "degree", "gamma", "clf", "tol"), text
    assert str(candidates_of({"C": space["C"]}).space) == str(st.space({"C": st.loguniform(1e-2, 10)}))
    assert str(candidates_of({"degree": space["degree"]}).space) == str(st.space({"degree": st.randint(1, 4)}))
    assert str(candidates_of({"gamma": space["gamma"]}).space) == str(st.space({"gamma": st.uniform(1, 3)}))


def test_a_space_of_sparktrain_is_taken_as_it_is() -> None:
    space = st.zipped(C=[1, 2], tol=[0.1, 0.2])
    assert candidates_of(space).space is space


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (3, r"the space is 3 \(int\); pass a dict of lists"),
        ("C", "the space is 'C'"),
        ([], "the space is an empty list"),
        ({}, "at least one parameter"),
        ({"C": []}, "the space: 'C' is an empty list"),
        ({"C": 1}, r"the space: 'C' is 1 \(int\), a list of values or a distribution is expected; write \[1\]"),
        ({"C": "rbf"}, r"write \['rbf'\]"),
        ({"C": np.ones((2, 2))}, r"array of shape \(2, 2\)"),
        ([{"C": [1]}, 3], r"the space\[1\] is 3"),
        ([{"C": [1]}, {"gamma": 1}], r"the space\[1\]: 'gamma' is 1"),
        ({"C": scipy.stats.norm(0, 1)}, "the distribution norm of SciPy"),
        ({"C": scipy.stats.loguniform(1, 2, loc=3)}, "the distribution (loguniform|reciprocal) of SciPy"),
    ],
)
def test_what_is_no_space_is_refused(space: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        candidates_of(space)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"clf__c": [1]}, "the space has 'clf__c', and Pipeline has no such parameter; did you mean 'clf__C'"),
        ({"C": [1]}, "the space has 'C'"),
        ([{"clf__C": [1]}, {"clf__depth": [2]}], "'clf__depth'"),
        ({"clf": [SVC(), LogisticRegression()], "clf__gamma": [1]}, "Invalid parameter 'gamma'.*a grid of its own"),
        ({"clf__C": [1], "scale": [StandardScaler()], "scale__with_std": [1], "scaler": [2]}, "'scaler'.*'scale'"),
    ],
)
def test_a_parameter_that_the_estimator_lacks_is_refused_with_the_nearest(space: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        check_names(PIPELINE, candidates_of(space))


def test_parameters_of_estimators_that_are_searched_themselves_exist() -> None:
    space = [{"clf": [LogisticRegression()], "clf__l1_ratio": [0.5]}, {"clf": [SVC()], "clf__gamma": ["auto"]}]
    check_names(PIPELINE, candidates_of(space))
