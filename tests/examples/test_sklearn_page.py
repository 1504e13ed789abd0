"""The program on the page about scikit-learn, unchanged."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

PAGE = Path(__file__).parents[2] / "docs" / "sklearn.md"
RUN_S = 120.0
[(NAME, TEXT)] = re.findall(r"^```python title=\"([^\"]+)\"\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.timeout(180)
def test_the_program_prints_what_grid_search_computes(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(TEXT)
    ended = subprocess.run([sys.executable, NAME], cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S)
    assert ended.returncode == 0, ended.stderr
    X, y = load_breast_cancer(return_X_y=True)
    pipeline = Pipeline([("scale", StandardScaler()), ("svc", SVC())])
    space = {"svc__C": [0.1, 1, 10], "svc__kernel": ["rbf", "linear"]}
    expected = GridSearchCV(pipeline, space, cv=5, scoring="accuracy").fit(X, y)
    assert f"{expected.best_params_} {expected.best_score_}" in ended.stdout
    assert str(expected.predict(X[:5])) in ended.stdout
