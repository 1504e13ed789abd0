"""A zygote imports this module once, so that no fit pays for what the first one in a process does.

Its import brings scikit-learn and the readers of data, and performs one search of a classifier that only counts. That
fills caches: scikit-learn compiles its checks of arguments, and narwhals, which it asks for the kind of a table, reads
the metadata of all installed packages, which takes longer than many a fit.
"""

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import GridSearchCV

from sparktrain.sklearn import fold_fit
from sparktrain.training.data import open_data

__all__ = ["fold_fit", "open_data", "rehearse"]


def rehearse() -> None:
    """Search with NumPy alone: OpenMP's threads, which other estimators start, do not survive a fork."""
    rows = np.zeros((4, 1))
    classes = np.array([0, 1, 0, 1])
    search = GridSearchCV(DummyClassifier(), {}, cv=[(np.array([0, 1]), np.array([2, 3]))], refit=False)
    search.fit(rows, classes)


rehearse()
