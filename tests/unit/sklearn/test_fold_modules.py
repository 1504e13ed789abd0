"""What zygotes of a search import."""

from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from sparktrain.datasets.shared_objects import ObjectIndex
from sparktrain.sklearn.candidates import candidates_of
from sparktrain.sklearn.fold_fit import SearchTask
from sparktrain.sklearn.search_input import modules_of, parts_of

PIPELINE = Pipeline([("scale", StandardScaler()), ("clf", SVC())])
TASK = SearchTask(
    estimator=PIPELINE, codes=candidates_of({"clf": [RandomForestClassifier()]}).codes, index=ObjectIndex((), "")
)


def test_zygotes_import_the_modules_of_all_parts_and_what_each_fit_needs() -> None:
    assert {*map(type, parts_of(TASK.estimator, TASK.codes))} >= {Pipeline, StandardScaler, SVC, RandomForestClassifier}
    modules = modules_of(TASK, [[1.0]])
    assert {"numpy", "pyarrow", "sklearn.pipeline", "sklearn.svm._classes", "sklearn.ensemble._forest"} <= set(modules)
    assert modules[-1] == "sparktrain.sklearn.fold_rehearsal"
    assert "tensorflow" not in modules


def test_a_variable_that_libraries_read_on_import_leaves_them_to_the_trials() -> None:
    assert modules_of(TASK, [[1.0]], ["OMP_NUM_THREADS"]) == ()
