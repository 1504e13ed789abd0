"""The result of a search: what `search_cv` returns, with the attributes of GridSearchCV."""

from dataclasses import dataclass, field
from typing import Any

from sklearn.metrics import check_scoring

from sparktrain.config.param_values import shown
from sparktrain.errors import MissingFileError, SpecError
from sparktrain.results.run_result import RunResult
from sparktrain.results.sweep_result import SweepResult
from sparktrain.sklearn.fold_fit import routed_params

_OF_THE_ESTIMATOR = frozenset((
    "classes_", "decision_function", "feature_names_in_", "inverse_transform", "n_features_in_", "predict_log_proba",
    "predict_proba", "score_samples", "transform",
))  # fmt: skip
"""Names that GridSearchCV has where its best estimator has them."""


@dataclass(kw_only=True, repr=False)
class SearchResult:
    """The result of a search, with the attributes that `GridSearchCV` has once it is fitted.

    `best_estimator_`, and all that it computes, is in the run directory until it is used: the first use loads it into
    this process, see `load_model`.
    """

    sweep: SweepResult
    """The sweep that has run the fits: a trial for each candidate and fold, with its log."""
    cv_results_: dict[str, Any]
    """Scores and times of all candidates, by the keys of GridSearchCV; it becomes a table by `pd.DataFrame`."""
    n_splits_: int
    """The number of splits."""
    multimetric_: bool
    """Whether there are several scores."""
    best_index_: int | None = None
    """The place of the best candidate in `cv_results_`; None where nothing decides between several scores."""
    refit: RunResult | None = None
    """The run that has fitted the best candidate to all rows; None with `refit=False`."""
    refit_time_: float | None = None
    """How long this fit took, in seconds."""
    scoring: Any = None
    deciding_score: str | None = None
    """The name of the score that decides; None for a function that decides, and for none."""
    _loaded: list[Any] = field(default_factory=list)

    @property
    def best_params_(self) -> dict[str, Any]:
        """The parameters of the best candidate. Raises AttributeError where there is none."""
        params: dict[str, Any] = self.cv_results_["params"][self._best("best_params_")]
        return params

    @property
    def best_score_(self) -> float:
        """The mean of the deciding score of the best candidate. Raises AttributeError where there is none."""
        index = self._best("best_score_")
        if self.deciding_score is None:
            raise AttributeError("best_score_ needs a score that decides, and refit= is a function: see cv_results_")
        return float(self.cv_results_[f"mean_test_{self.deciding_score}"][index])

    @property
    def best_estimator_(self) -> Any:
        """The best candidate, fitted to all rows. The first use calls `load_model`, and raises as that.

        Raises AttributeError with `refit=False`.
        """
        if self.refit is None:
            raise AttributeError("there is no best_estimator_, because refit is False: pass refit=True")
        return self._loaded[0] if self._loaded else self.load_model()

    def load_model(self, **options: Any) -> Any:
        """Load the fitted best estimator from the run directory into this process, and keep it as `best_estimator_`.

        `options` are those of the library, as of `TrialResult.load_model`: `trusted` of `skops.io.load`, in place of
        the types that the run has a record of. Where skops is not installed on executors, or cannot store the
        estimator, the file is a pickle, and runs the code in it: load it only from a directory that you trust.

        Blocks on the store. Raises MissingFileError with `refit=False`, and as `TrialResult.load_model`.
        """
        if self.refit is None:
            raise MissingFileError("the search has fitted no candidate to all rows, because refit is False")
        estimator = self.refit.load_model(**options)
        self._loaded[:] = [estimator]
        return estimator

    def predict(self, X: Any) -> Any:
        """What `best_estimator_` predicts. Loads it at the first use."""
        return self.best_estimator_.predict(X)

    def score(self, X: Any, y: Any = None, **params: Any) -> float:
        """The score of `best_estimator_` on these rows, by the scorer that decides. Loads it at the first use.

        `params` are what that scorer requests by metadata routing, such as `sample_weight`. Raises SpecError where the
        setting `enable_metadata_routing` is off.
        """
        estimator = self.best_estimator_
        if self.multimetric_ and self.deciding_score is None:
            raise AttributeError("score() needs a score that decides, and refit= is a function: use a scorer yourself")
        routed = routed_params(estimator, self.scoring, "score", params)
        if params and routed is None:
            raise SpecError(
                f"score() has the arguments {', '.join(params)}, which need metadata routing: call "
                "sklearn.set_config(enable_metadata_routing=True), or leave them out"
            )
        requested = {} if routed is None else routed.scorer.score
        rows = (X,) if y is None else (X, y)
        scored: Any = check_scoring(estimator, scoring=self.scoring)(estimator, *rows, **requested)
        return float(scored[self.deciding_score] if self.multimetric_ else scored)

    def __getattr__(self, name: str) -> Any:
        if name in _OF_THE_ESTIMATOR:
            return getattr(self.best_estimator_, name)
        # Python calls this for an AttributeError of a property too, and its message names what is missing.
        if isinstance(getter := vars(type(self)).get(name), property):
            return getter.__get__(self)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __repr__(self) -> str:
        size = f"{len(self.cv_results_['params'])} candidates x {self.n_splits_} splits"
        if self.best_index_ is None:
            return f"SearchResult({size}, {self.sweep.directory})"
        score = "" if self.deciding_score is None else f"best_score_={self.best_score_:.6g}, "
        return f"SearchResult({score}best_params_={shown(self.best_params_, 200)}, {size}, {self.sweep.directory})"

    def _best(self, name: str) -> int:
        if self.best_index_ is None:
            raise AttributeError(f"there is no {name}: name the score that decides by refit=")
        return self.best_index_
