"""The calls of the user: wiring, no decisions."""

import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from sparktrain.driver import preflight
from sparktrain.driver.compose import Composed, SweepOptions, compose, module_names, options_of, result, unloadable
from sparktrain.driver.display import choose_display
from sparktrain.driver.pool import AgentPool
from sparktrain.driver.preflight import Session
from sparktrain.driver.progress import Display
from sparktrain.driver.results import SweepResult
from sparktrain.driver.signature import Target
from sparktrain.driver.work import Work
from sparktrain.search.space import Space, zipped
from sparktrain.spec.sweep import Duration, Mode, seconds
from sparktrain.state.sweep import Ending

DEFAULT_PRELOAD = ("numpy", "keras", "tensorflow")
"""What the zygotes of a pool import when nothing is said; a library that is not installed is passed over."""

SpaceLike = Space | Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]


def sweep(
    train: Callable[..., Any],
    space: SpaceLike,
    *,
    metric: str,
    mode: Mode = "max",
    spark: Session | None = None,
    agents: int | None = None,
    **options: Any,
) -> SweepResult:
    """Call `train` once for each set of parameters in `space`, each in a fresh process on a Spark executor.

    Blocks until every trial has ended, and shows progress meanwhile. A trial that fails is a result. Call it in the
    driver, in one thread at a time for a session.

    Args:
        train: the training function. It takes the parameters by name, and `ctx` (a `TrainContext`) if it names it; it
            returns a number, or a flat dict of numbers.
        space: a dict of lists or `grid(...)` (every combination), `zipped(...)` (position by position), or a list of
            dicts.
        metric: the entry of the result that trials are compared by.
        mode: "max" or "min", the better end of the metric.
        spark: the session to use; the active one by default. Spark Connect sessions will do.
        agents: how many trials run at a time; by default one for each slot (`spark.task.cpus` cores) of the session.
        **options: trials (run at most so many), dir (run directories are made here; default `sparktrain-runs`), name
            (of the run; default the function's name and the time), seed (of the run; `ctx.seed` follows from it and the
            trial's id), trial_timeout and timeout (seconds, `timedelta`, or "90s", "5m", "2h"), start_timeout (how long
            to wait while there are no agents, default 300 s), retries (times a trial is run again after its process,
            agent or executor was lost, default 3), gpus (for each trial), log_limit (bytes of a trial's log that are
            kept, default 1 GiB), preload (modules that are imported before trials start; by default those that `train`
            uses), progress (False: show nothing).

    Returns:
        What became of each trial, best first to find under `.best`. The same is in `results.json` of the run directory.

    Raises:
        UserError: the call is wrong, and nothing was started.
        InfraError: the cluster failed; `results.json` has what was done until then.
        KeyboardInterrupt: Ctrl-C; no training process is left, and `results.json` has what was done until then.
    """
    chosen = options_of(metric=metric, mode=mode, **options)
    return _alone(compose(train, space, chosen), chosen, spark, agents)


def launch(
    spark: Session | None, map_fun: Callable[..., Any], args_dict: Mapping[str, Sequence[Any]], **options: Any
) -> SweepResult:
    """Call `map_fun` once for each position of the lists in `args_dict`, each in a fresh process on a Spark executor.

    The lists must have equal lengths; `map_fun` may return nothing. Options, blocking and errors as of `sweep`.
    """
    agents = options.pop("agents", None)
    chosen = options_of(**options)
    return _alone(compose(map_fun, zipped(args_dict), chosen), chosen, spark, agents)


def sweep_target(
    target: Target,
    space: SpaceLike,
    options: SweepOptions,
    *,
    session: Callable[[], Any],
    agents: int | None = None,
    display: Display | None = None,
) -> SweepResult:
    """A sweep for the command line: `session` makes the Spark session's context once the call is known to be right."""
    composed = compose(target, space, options)
    preflight.check_agents(agents)
    composed.check_directory()
    with session() as spark:
        return _alone(composed, options, spark, agents, display)


class Pool:
    """Agents that stay between calls: a notebook's next cell starts at once. Made by `sparktrain.pool`.

    Its methods block, and belong to the thread that made it.
    """

    def __init__(self, agents: AgentPool, facts: preflight.Facts) -> None:
        self._agents = agents
        self._facts = facts

    def __enter__(self) -> "Pool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def agents(self) -> int:
        """How many trials can run at a time."""
        return self._agents.agents

    def sweep(
        self, train: Callable[..., Any], space: SpaceLike, *, metric: str, mode: Mode = "max", **options: Any
    ) -> SweepResult:
        """As `sparktrain.sweep`, on the agents of this pool. Raises PoolError when it is closed."""
        return self._call(train, space, options_of(metric=metric, mode=mode, **options))

    def launch(
        self, map_fun: Callable[..., Any], args_dict: Mapping[str, Sequence[Any]], **options: Any
    ) -> SweepResult:
        """As `sparktrain.launch`, on the agents of this pool. Raises PoolError when it is closed."""
        return self._call(map_fun, zipped(args_dict), options_of(**options))

    def close(self) -> None:
        """End what runs, and give the slots back; again does nothing. Blocks for some seconds at most."""
        self._agents.close()

    def _call(self, function: Callable[..., Any], space: SpaceLike, options: SweepOptions) -> SweepResult:
        composed = compose(function, space, options)
        preflight.check_gpus(self._facts, composed.spec.gpus)
        self._agents.check_free()
        display = choose_display(quiet=not options.progress)
        return _run(self._agents, composed, composed.work(self.agents, display), display)


def pool(
    spark: Session | None = None,
    agents: int | None = None,
    *,
    preload: Sequence[str] = DEFAULT_PRELOAD,
    idle_timeout: Duration | None = 600.0,
) -> Pool:
    """Start agents that stay for several calls. Use it as `with sparktrain.pool(...) as pool: pool.sweep(...)`.

    Returns at once, while the agents start. The slots are given back at the end of the `with` block, by `close()`, by
    Ctrl-C during a call, and after `idle_timeout` without a call (the next call starts agents anew).

    Args:
        spark: the session to use; the active one by default.
        agents: how many trials run at a time; by default one for each slot of the session.
        preload: modules that are imported before the first call; those of a call that are missing come with it.
        idle_timeout: seconds, `timedelta` or a text like "10m"; None for never.

    Raises:
        UserError: there is no session, or it has too few slots.
    """
    session, facts = _session(spark)
    count = preflight.agents_for(facts, agents, None)
    started = AgentPool(session, facts, count, module_names(preload), seconds(idle_timeout, "idle_timeout"))
    started.open()
    return Pool(started, facts)


def _session(spark: Session | None) -> tuple[Session, preflight.Facts]:
    session = preflight.active_session(spark)
    return session, preflight.read_facts(session, os.cpu_count() or 1)


def _alone(
    composed: Composed,
    options: SweepOptions,
    spark: Session | None,
    agents: int | None,
    display: Display | None = None,
) -> SweepResult:
    """A run with agents of its own."""
    session, facts = _session(spark)
    preflight.check_gpus(facts, composed.spec.gpus)
    count = preflight.agents_for(facts, agents, composed.trials, composed.spec.workers_per_trial)
    own = AgentPool(session, facts, count, composed.preload, None)
    shown = display or choose_display(quiet=not options.progress)
    composed.check_directory()
    try:
        own.open()
        return _run(own, composed, composed.work(count, shown), shown)
    finally:
        own.close()


def _run(agents: AgentPool, composed: Composed, work: Work, display: Display) -> SweepResult:
    """Run, write the result, and raise what ended the run before its time."""
    display.start()
    try:
        ran, interrupted = agents.run(work)
    finally:
        display.close()
    made = result(composed, ran)
    if interrupted:
        raise KeyboardInterrupt(f"run {made.name} was interrupted; {made.directory} has its results so far")
    if ran.end.ending == Ending.UNLOADABLE and ran.end.failure is not None:
        raise unloadable(composed, ran.end.failure)
    if (failure := agents.failure(ran, composed.spec.start_timeout_s)) is not None:
        raise failure
    return made
