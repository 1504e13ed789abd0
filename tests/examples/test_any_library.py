"""The example of libraries other than TensorFlow: each trains in a sweep, and its model is kept and loaded."""

import importlib
from pathlib import Path

import pytest

import sparktrain as st

ROOT = Path(__file__).parents[2]
CLASSES = {"logistic regression": "LogisticRegression", "xgboost": "XGBClassifier", "lightgbm": "Booster"}


def test_models_of_three_libraries_train_side_by_side_and_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    example = importlib.import_module("any_library")
    result = example.search(st.local(slots=2), dir=str(tmp_path), name="digits", progress=False)
    assert [trial.status for trial in result.trials] == ["succeeded"] * 6
    assert {trial.extra["kind"] for trial in result.trials} == set(example.MODELS)
    assert result.best.metrics["accuracy"] > 0.95
    loaded = {trial.params["kind"]: type(trial.load_model()).__name__ for trial in result.trials}
    assert loaded == CLASSES
