"""A driver that searches an estimator without Spark, for tests to kill."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV

import sparktrain as st
from sparktrain.base.clock import pause
from tests.support.mortal import NAME


class MarkedRidge(Ridge):  # type: ignore[misc] # scikit-learn has no types
    """Leaves a mark in `folder` for each fit; those with a large `alpha` wait while FOLDER/hold exists."""

    def __init__(self, folder: str = "", alpha: float = 1.0) -> None:
        super().__init__(alpha=alpha)
        self.folder = folder

    def fit(self, X: Any, y: Any) -> "MarkedRidge":
        """Fit, and leave the mark."""
        while self.alpha > 1 and Path(self.folder, "hold").exists():
            pause(0.02)
        super().fit(X, y)
        Path(self.folder, f"fit-{self.alpha:g}-{X[0, 0]:g}-{X[-1, 0]:g}-{len(X)}-{os.getpid()}").touch()
        return self


def search(folder: Path) -> Any:
    """Four candidates on three folds; returns their scores, and those of GridSearchCV."""
    numbers = np.random.default_rng(7).normal(size=(60, 3))
    X = np.column_stack([np.arange(60), numbers])
    y = X @ np.array([0.1, 1, 2, 3]) + np.random.default_rng(8).normal(size=60)
    space = {"alpha": [1.0, 2.0, 10.0, 100.0]}
    result = st.sklearn.search_cv(
        MarkedRidge(str(folder)), space, X, y, cv=3, spark=st.local(slots=2), dir=str(folder / "runs"), name=NAME,
        progress=False,
    )  # fmt: skip
    expected = GridSearchCV(Ridge(), space, cv=3).fit(X, y)
    return {
        "scores": result.cv_results_["mean_test_score"].tolist(),
        "expected": expected.cv_results_["mean_test_score"].tolist(),
        "predicted": result.predict(X).tolist(),
        "expected_predictions": expected.predict(X).tolist(),
    }
