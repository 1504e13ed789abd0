"""Searches of scikit-learn estimators and pipelines as sweeps: `st.sklearn.search_cv(estimator, space, X, y)`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparktrain.sklearn.fold_search import search_cv
    from sparktrain.sklearn.search_result import SearchResult

_HOMES = {"SearchResult": "search_result", "search_cv": "fold_search"}
"""Imported when they are used: members import what they run from this package without the driver."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sparktrain.sklearn' has no attribute {name!r}")
    from importlib import import_module

    from sparktrain.base.optional_packages import require

    require("sklearn", f"sparktrain.sklearn.{name}")
    return getattr(import_module(f"sparktrain.sklearn.{_HOMES[name]}"), name)


__all__ = ["SearchResult", "search_cv"]
