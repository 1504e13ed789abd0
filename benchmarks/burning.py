"""An estimator with a known cost, for `benchmarks.sklearn_search`.

In a module of its own, because each fit of `search_cv` imports the modules of the user: those that most estimators come
from are libraries, which the zygote has.
"""

import time
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

FIT_S = 0.05


class Burning(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """A classifier that takes `fit_s` seconds of a core to fit, 50 ms by default."""

    def __init__(self, number: int = 0, fit_s: float = FIT_S) -> None:
        self.number = number
        self.fit_s = fit_s

    def fit(self, X: Any, y: Any) -> "Burning":
        """Burn."""
        until = time.process_time() + self.fit_s
        while time.process_time() < until:
            self.mean_ = float(np.mean(X[:100, 0]))
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: Any) -> Any:
        """The sign of the first column, moved by `number`."""
        return (X[:, 0] > self.mean_ + self.number / 10).astype(int)
