"""Runs the trials of an Optuna study on executors: `st.optuna.optimize(study, objective, n_trials=...)`."""

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Unpack

from sparktrain.api import Pool, sweep_as
from sparktrain.base.boundary import message_of, trace_of, users_call
from sparktrain.config.call_arguments import StudyArguments
from sparktrain.config.param_values import described, native
from sparktrain.driver.engines.local_engine import LocalMachine
from sparktrain.errors import FunctionError, SamplerError, SparktrainError, SpecError
from sparktrain.results.sweep_result import SweepResult
from sparktrain.search.exhaustive_samplers import ends_by_itself
from sparktrain.search.space import single
from sparktrain.search.study_sampler import VALUE, StudySampler
from sparktrain.usercode.closure import captures_of
from sparktrain.usercode.imports import plain_function_of

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

    from sparktrain.cluster.spark_facts import Session

__all__ = ["optimize"]

_CALL = "optuna.optimize"
_OF_THE_STUDY = {
    "metric": "the objective returns it",
    "mode": "pass direction= to optuna.create_study()",
    "sampler": "pass sampler= to optuna.create_study()",
    "stopper": "pass pruner= to optuna.create_study(), and call trial.report() and trial.should_prune()",
    "trials": "pass n_trials=",
}
"""Options of a sweep that the study has, and what to do."""


@users_call
def optimize(
    study: "Study",
    objective: Callable[..., Any],
    n_trials: int | None = None,
    *,
    n_jobs: int | None = None,
    callbacks: "Iterable[Callable[[Study, FrozenTrial], None]] | None" = None,
    spark: "Session | LocalMachine | None" = None,
    pool: Pool | None = None,
    **options: Unpack[StudyArguments],
) -> SweepResult:
    """Run an ordinary Optuna objective on executors, each trial in its own process, and record it in the study.

    Blocks until every trial has ended. Only this process uses the study and its storage, in one thread: the trial on
    an executor asks this process for each `suggest_*` and `should_prune`. A failed trial is a result, and the others
    continue. The same call with the same `dir` and `name` resumes the run: `n_trials` includes the former trials.

    Args:
        study: the study, with any storage, sampler, pruner and number of objectives.
        objective: takes a `trial`, and a `TrainContext` if it has a parameter `ctx`; returns the value, or a tuple of
            values. It may raise `optuna.TrialPruned`.
        n_trials: the most trials of the run; required unless there is a timeout, or the sampler of the study ends by
            itself.
        n_jobs: how many trials run at the same time; by default, and for -1, one for each slot.
        callbacks: sparktrain calls `callback(study, frozen_trial)` in this process after each trial, in a separate
            thread. `study.stop()` in a callback or in the study's sampler, or `trial.study.stop()` in the objective,
            ends the run once the running trials have ended.
        spark: the session to use, or `sparktrain.local()`; the active session by default.
        pool: the pool to run on, in place of a session.
        **options: those of `sparktrain.launch`, such as dir and name, except what the study has: metric, mode, sampler,
            stopper, trials. `timeout` limits the whole run, in seconds or as "2h".

    Returns:
        The trials with their parameters, the metric `value`, or `values_0`, `values_1` and so on, and their logs.

    Raises:
        UserError: the call is wrong, and raises before anything starts; or executors cannot load the objective.
        SamplerError: the study, its storage or a callback raised; the run keeps its results, and the same call resumes
            it.
        InfraError: the cluster failed.
        KeyboardInterrupt: Ctrl-C.
    """
    _check(study, objective, options)
    single_objective = len(study.directions) == 1
    arguments: dict[str, Any] = dict(options)
    n_trials = native(n_trials)
    if n_trials is None and options.get("timeout") is None and not ends_by_itself(study):
        raise SpecError("optuna.optimize() has no end, and slots of a cluster cost money: pass n_trials=N or timeout=")
    if n_jobs is not None and n_jobs != -1:
        arguments["max_concurrent_trials"] = n_jobs
    if n_trials is not None:
        arguments["trials"] = n_trials
    if single_objective:
        arguments |= {"metric": VALUE, "mode": "max" if study.direction.name == "MAXIMIZE" else "min"}
    sampler = StudySampler(study, n_trials, StudyCallbacks(callbacks))
    arguments["sampler"] = sampler
    try:
        return sweep_as(_CALL, _for_run(objective), single({}), arguments, spark=spark, pool=pool)
    finally:
        sampler.close()


def _check(study: object, objective: object, options: Any) -> None:
    """Raise SpecError or FunctionError for what no run can be made of."""
    if find_spec("optuna") is None:
        raise SpecError("sparktrain.optuna needs optuna, which is not installed: pip install 'sparktrain[search]'")
    from optuna.study import Study

    if not isinstance(study, Study):
        raise SpecError(f"study is {described(study)}, a study is expected: pass what optuna.create_study() returned")
    if not callable(objective):
        raise FunctionError(
            f"the objective is {described(objective)}, which cannot be called: pass def objective(trial): ..."
        )
    for capture in captures_of(objective):
        if isinstance(capture.value, Study):
            raise FunctionError(
                f"the objective uses a study ({capture.name}), which stays in the driver with its storage: pass what "
                "it needs of it as values, or use callbacks="
            )
    for name, step in _OF_THE_STUDY.items():
        if name in options:
            raise SpecError(f"optuna.optimize() has no option {name}, because the study has it: {step}")
    if options.get("workers_per_trial", 1) != 1:
        raise SpecError(
            f"workers_per_trial ({options['workers_per_trial']}) must be 1: only one process of a trial can ask the "
            "study; leave it out, or use sparktrain.sweep() with a sampler of Optuna for gangs"
        )


class StudyCallbacks:
    """The callbacks of one call."""

    def __init__(self, callbacks: object) -> None:
        """Raises SpecError for what is no list of functions."""
        hooks: Any = () if callbacks is None else callbacks
        if isinstance(hooks, str) or not isinstance(hooks, Iterable) or not all(map(callable, hooks := tuple(hooks))):
            raise SpecError(f"callbacks is {described(callbacks)}, a list of functions is expected: pass callbacks=[f]")
        self._callbacks = tuple(hooks)

    def __call__(self, study: "Study", ended: "FrozenTrial") -> None:
        """Call all of them. Raises SamplerError for one that raises whatever it may be."""
        for callback in self._callbacks:
            try:
                callback(study, ended)
            except SparktrainError:
                raise
            except BaseException as error:  # it is called in a thread of ours: there is no Ctrl-C in it
                name = getattr(callback, "__name__", type(callback).__name__)
                raise SamplerError(
                    f"the callback {name} of {_CALL}() raised {type(error).__name__} for trial {ended.number} of the "
                    f"study: {message_of(error)}; the run is stopped and keeps its results: correct the callback, and "
                    f"make the same call to resume\n{trace_of(error)}"
                ) from error


def _for_run(objective: Callable[..., Any]) -> Callable[..., Any]:
    """The training function around an objective."""

    def train(ctx: Any, **params: Any) -> Any:
        from sparktrain.training.study_trial import run_objective

        return run_objective(objective, ctx)

    called = plain_function_of(objective)
    train.__module__ = getattr(called, "__module__", "__main__")  # its imports are the user's
    train.__name__ = getattr(objective, "__name__", type(objective).__name__)
    return train
