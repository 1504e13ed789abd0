"""Searches hyperparameters of an estimator of scikit-learn: each candidate and fold is a trial of a sweep.

    estimator, space, X, y -> checks (`search_input`, `candidates`)
    -> rows of bytes (`datasets.shared_objects`)
    -> a sweep with a trial for each fit (`fold_fit`, in members) -> `cv_results` -> a refit of the best candidate

The refit runs on the agents of the sweep, reads the dataset of the sweep, and exports the estimator in its own run
directory.
"""

import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import sklearn
from sklearn.exceptions import FitFailedWarning

from sparktrain.api import Pool, agents_of, check_agents_of, held_agents, refit_on, sweep_on
from sparktrain.base import formatting
from sparktrain.base.boundary import users_call
from sparktrain.config.call_arguments import FoldSearchArguments
from sparktrain.config.call_option import documented_by, options_in, settled
from sparktrain.config.data_sources import TableSource
from sparktrain.config.option_catalog import FoldSearchKeywords, RefitKeywords
from sparktrain.config.param_values import described
from sparktrain.config.stoppers import AnyStopRule
from sparktrain.datasets.shared_objects import object_table
from sparktrain.driver.agent_sources import OpenAgents
from sparktrain.driver.engines.local_engine import LocalMachine
from sparktrain.errors import NoBestTrialError, SpecError
from sparktrain.results.run_result import RunResult
from sparktrain.results.sweep_result import SweepResult
from sparktrain.runs.failure_table import no_best
from sparktrain.runs.trial_result import TrialResult
from sparktrain.search.space import ListedSpace
from sparktrain.sklearn.candidates import candidates_of, check_names
from sparktrain.sklearn.cv_results import FoldTable, fold_table, results_of
from sparktrain.sklearn.fold_fit import DATA, FIT_ERROR, FIT_FAILED, RAISE, SINGLE, SearchTask
from sparktrain.sklearn.search_input import (
    Refit,
    check_callbacks,
    check_estimator,
    check_scores,
    data_of,
    growth_of,
    modules_of,
    scoring_of,
)
from sparktrain.sklearn.search_result import SearchResult

if TYPE_CHECKING:
    from sparktrain.cluster.spark_facts import Session

_CALL = "sklearn.search_cv"
_OF_THE_SEARCH = {
    "data": "X and y are its data",
    "folds": "pass cv=",
    "mode": "scorers return more for what is better",
    "repeats": "pass a splitter that repeats, such as cv=RepeatedKFold(n_repeats=3)",
}
"""Options of a sweep that the search sets, and what to do."""
_NAME_LIMIT = 100
"""Characters of the sweep's name in that of the refit."""


@users_call
@documented_by(FoldSearchKeywords)
def search_cv(
    estimator: Any,
    space: Any,
    X: Any,
    y: Any = None,
    *,
    cv: Any = 5,
    scoring: Any = None,
    refit: Refit = True,
    resource: str | None = None,
    groups: Any = None,
    fit_params: Mapping[str, Any] | None = None,
    error_score: float | str = float("nan"),
    return_train_score: bool = False,
    spark: "Session | LocalMachine | None" = None,
    pool: Pool | None = None,
    **options: Unpack[FoldSearchArguments],
) -> SearchResult:
    """Search hyperparameters of an estimator or pipeline by cross-validation: each fit is a trial in its own process.

    Splits, scores, ranks and the fitted estimator are those of `sklearn.model_selection.GridSearchCV`. Blocks until all
    trials have ended and the best candidate is fitted to all rows. The same call with the same `dir` and `name` resumes
    the search. Call it in the driver, from any thread.

    The search sets `mode`, `folds`, `repeats` and `data` itself, and refuses them. Unlike in a sweep, `racing` is off
    by default, so that each candidate has all scores, and `max_failures` is None, so that failed fits end nothing.

    Args:
        estimator: an estimator or pipeline of scikit-learn, or of a library with its interface.
        space: a dict of lists (a grid, in the order of `ParameterGrid`), a list of such dicts, a dict with
            distributions of sparktrain or `uniform`, `loguniform` and `randint` of SciPy, or what `sparktrain.space`,
            `grid`, `zipped` and `cases` return. Values of lists are any objects.
        X: the rows: an array, a sparse matrix, a list, or a DataFrame of pandas or Spark. sparktrain collects a
            DataFrame of Spark into this process. Executors get the rows once for each host, and map them.
        y: the targets: an array, or the name of a column of X, which is then no feature; None without targets.
        cv: a number of folds, a splitter, or an iterable of pairs of row numbers, as of GridSearchCV.
        scoring: the name of a scorer, a scorer, a list or dict of several, or a function that returns a dict.
        refit: whether to fit the best candidate to all rows; of several scores the name of the one that decides, or a
            function from `cv_results_` to the place of the best candidate.
        resource: what fits start with little of, so that a rule of `stopper=` ends poor candidates early: "n_samples",
            or the name of a parameter such as "n_estimators". The rule's `first` and `most` are amounts of it.
        groups: the group of each row for the splitter, or the name of a column of X.
        fit_params: further arguments of `fit`; those with an entry for each row are split as the rows are.
        error_score: the score of a fit or scorer that fails; "raise" ends the search with its error.
        return_train_score: whether to score the rows that were fitted, too.
        spark: the session to use, or `sparktrain.local()`; the active session by default.
        pool: the pool to run on, in place of a session.
        **options: the options that `FoldSearchKeywords` in `sparktrain.config.option_catalog` defines.

    Returns:
        The result with the attributes of a fitted GridSearchCV, and `sweep`, the sweep that has run the fits.

    Raises:
        UserError: the call is wrong, and raises before anything starts; or executors cannot load the estimator.
        NoBestTrialError: every fit failed, or one did with error_score="raise".
        RunFailedError: the fit to all rows failed. InfraError: the cluster failed. KeyboardInterrupt: Ctrl-C.
    """
    check_agents_of(_CALL, spark, pool)
    rules = _checked_rules(options)
    check_estimator(estimator)
    check_scores(error_score, return_train_score)
    scored = scoring_of(estimator, scoring, refit)
    candidates = candidates_of(space)
    check_names(estimator, candidates)
    check_callbacks(estimator, candidates.codes)
    if scored.metric is None and not isinstance(candidates.space, ListedSpace):
        raise SpecError(f"a sampler needs a score that decides: name one of {', '.join(scored.names)} by refit=")
    data = data_of(X, y, groups, fit_params, cv, estimator, scoring)
    choice = growth_of(resource, rules, estimator, candidates.space.names, data)
    table, index = object_table(data)
    task = SearchTask(
        estimator=choice.estimator,
        codes=candidates.codes,
        index=index,
        scoring=scoring,
        names=scored.names,
        metric=scored.metric,
        error_score=error_score,
        return_train_score=return_train_score,
        config=sklearn.get_config(),
        growth=choice.growth,
    )
    variables = (*(options.get("env") or ()), *(options.get("forward_env") or ()))
    arguments: dict[str, Any] = {"preload": modules_of(task, data.X, variables), **options}
    with ExitStack() as stack:
        agents = stack.enter_context(held_agents(spark)) if pool is None else agents_of(pool)
        sweep = sweep_on(
            agents,
            _CALL,
            _fold_function(task, len(data.splits)),
            candidates.space,
            {
                "racing": False,
                "max_failures": 1 if error_score == RAISE else None,
                **arguments,
                "stopper": choice.rules,
                "metric": scored.metric,
                "mode": "max",
                "folds": len(data.splits),
                "data": {DATA: TableSource(table)},
            },
        )
        fits = fold_table(sweep, candidates.codes, () if callable(scoring) else scored.names)
        _check_fits(sweep, fits, error_score)
        result = _result(sweep, fits, task, refit)
        if refit is not False and result.best_index_ is not None:
            result.refit = _refit(agents, sweep, task, result.best_index_, arguments)
            result.refit_time_ = result.refit.metrics.get("refit_time")
    return result


def _checked_rules(options: Mapping[str, Any]) -> tuple[AnyStopRule, ...]:
    """The rules of `stopper=`. Raises SpecError for options of a sweep that the search has itself."""
    for name, step in _OF_THE_SEARCH.items():
        if name in options:
            raise SpecError(f"search_cv() has no option {name}: {step}")
    rules = settled(FoldSearchKeywords, options, _CALL).stopper
    if options.get("workers_per_trial", 1) != 1:
        raise SpecError(
            f"workers_per_trial ({options['workers_per_trial']}) must be 1: a fit is one process; leave it out"
        )
    return rules


def _fold_function(task: SearchTask, folds: int) -> Callable[..., Any]:
    """The training function of the fits; with several folds also of the fit to all rows, see `_refit`."""

    def train(ctx: Any, **params: Any) -> Any:
        from sparktrain.sklearn import fold_fit

        is_whole = folds > 1 and ctx.folds == 1
        return (fold_fit.fit_best if is_whole else fold_fit.fit_fold)(task, ctx, params)

    return _named(train, task)


def _refit_function(task: SearchTask) -> Callable[..., Any]:
    """The training function of the fit to all rows, for a search with one fold."""

    def train(ctx: Any, **params: Any) -> Any:
        from sparktrain.sklearn.fold_fit import fit_best

        return fit_best(task, ctx, params)

    return _named(train, task)


def _named(train: Callable[..., Any], task: SearchTask) -> Callable[..., Any]:
    """The function by the name of the estimator, which its run has too."""
    train.__module__ = "__main__"  # its imports are the user's
    train.__name__ = type(task.estimator).__name__
    return train


def _check_fits(sweep: SweepResult, fits: FoldTable, error_score: float | str) -> None:
    """Warn of fits that failed. Raises NoBestTrialError where all did, or one did that must not."""
    failed = fits.failed_fits
    total = len(sweep.trials)
    ended = int(np.isfinite(fits.metrics["fit_time"]).sum())
    error = next((trial for trial in sweep.trials if trial.error is not None), None)
    if error_score == RAISE and error is not None and error.error is not None:
        raise NoBestTrialError(
            f"trial {error.id} of {sweep.directory} failed: {error.error.summary}; its log is {error.log}. Correct the "
            "candidate, or pass a number as error_score, which is the score of fits that fail"
        )
    fit = next((trial for trial in sweep.trials if FIT_FAILED in trial.metrics), None)
    first = "" if fit is None else f"trial {fit.id} {_why(fit)}, and its log is {fit.log}"
    if failed == ended:
        rule = f"error_score ({error_score}) is the score of a fit that fails beside others"
        advice = f"correct the estimator, the space or the rows; {rule}"
        listed = f"all {formatting.count(failed, 'fit')} of {sweep.directory} failed: {first}; {advice}"
        raise NoBestTrialError(no_best(sweep) if fit is None else listed)
    if failed:
        errors = f"failures() and read_log() of the trials of result.sweep have the errors ({sweep.directory})"
        count = f"{formatting.count(failed, 'fit')} of {total} failed"
        warnings.warn(f"{count}, and their scores are {error_score}: {first or errors}", FitFailedWarning, stacklevel=4)


def _why(trial: TrialResult) -> str:
    """What a fit that failed raised; only the log has it of a run of an older sparktrain."""
    return f"raised {trial.extra[FIT_ERROR]}" if FIT_ERROR in trial.extra else "raised in its fit"


def _result(sweep: SweepResult, fits: FoldTable, task: SearchTask, refit: Refit) -> SearchResult:
    """The result so far. Raises SpecError for a place that is none."""
    results = results_of(fits, with_train=task.return_train_score)
    several = fits.scores != [SINGLE]
    deciding = refit if isinstance(refit, str) and several else None if several or callable(refit) else SINGLE
    index: int | None = None
    if callable(refit):
        chosen: Any = refit(results)
        if not isinstance(chosen, int | np.integer) or not 0 <= chosen < len(fits.params):
            raise SpecError(
                f"refit() returned {described(chosen)}, the place of a candidate is expected: a number from 0 to "
                f"{len(fits.params) - 1}"
            )
        index = int(chosen)
    elif deciding is not None:
        index = int(results[f"rank_test_{deciding}"].argmin())
    return SearchResult(
        sweep=sweep,
        cv_results_=results,
        n_splits_=sweep.folds,
        multimetric_=several,
        best_index_=index,
        scoring=task.scoring,
        deciding_score=deciding,
    )


def _refit(
    agents: OpenAgents, sweep: SweepResult, task: SearchTask, index: int, arguments: Mapping[str, Any]
) -> RunResult:
    """The run that fits a candidate to all rows, on the same agents. Raises as `sparktrain.refit`."""
    first = sorted({trial.id // sweep.folds for trial in sweep.trials})[index] * sweep.folds
    options = {name: value for name, value in arguments.items() if name in options_in(RefitKeywords)}
    options |= {
        "trial": first,
        "from_checkpoint": "none",
        "workers": 1,
        "metric": None,
        "mode": None,
        # The best candidate differs once the space is wider: its refit is another run.
        "name": f"{sweep.name[:_NAME_LIMIT]}-refit-{first}",
    }
    # A run has no folds, by which the function of the search knows it: packing another one takes longer than many fits.
    function = None if sweep.folds > 1 else _refit_function(task)
    return refit_on(agents, sweep, function, options)
