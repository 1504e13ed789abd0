"""The calls of the user: wiring, no decisions."""

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from sparktrain.boundary import users_call
from sparktrain.cluster import preflight
from sparktrain.cluster.preflight import Session
from sparktrain.config.gang_spec import AUTO, Backend
from sparktrain.config.quantities import Duration, seconds
from sparktrain.config.sweep_spec import Mode
from sparktrain.display.live import choose_display
from sparktrain.driver.admission import admit, session_of
from sparktrain.driver.backend_choice import HOROVOD
from sparktrain.driver.finish import finished, interrupted, result, run_end, unloadable
from sparktrain.driver.first_lines import nothing_run, opening
from sparktrain.driver.options import Options, RunOptions, SweepOptions, options_of
from sparktrain.driver.pool import AgentPool
from sparktrain.driver.prepare import PreparedRun, compose, compose_again, module_names
from sparktrain.nesting import check_not_nested
from sparktrain.runs.progress import Display
from sparktrain.runs.results import RunResult, SweepResult
from sparktrain.runs.run_result import RunEnd
from sparktrain.search.space import Space, single, zipped
from sparktrain.state.sweep import Ending
from sparktrain.usercode.target import Target

DEFAULT_PRELOAD = ("numpy", "keras", "tensorflow")
"""What the zygotes of a pool import when nothing is said; a library that is not installed is passed over."""

SpaceLike = Space | Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]


@users_call
def sweep(
    train: Callable[..., Any],
    space: SpaceLike,
    *,
    metric: str,
    mode: Mode | None = None,
    spark: Session | None = None,
    agents: int | None = None,
    **options: Any,
) -> SweepResult:
    """Call `train` once for each set of parameters in `space`, each in a fresh process on a Spark executor.

    Blocks until every trial has ended, and shows progress meanwhile. A trial that fails is a result. Call it in the
    driver, in any thread: calls at the same time share the session's slots, and one that wants too many is refused.

    Args:
        train: the training function. It takes the parameters by name, and `ctx` (a `TrainContext`) if it names it; it
            returns a number, or a flat dict of numbers.
        space: a dict of lists or `grid(...)` (every combination), `zipped(...)` (position by position), or a list of
            dicts.
        metric: the entry of the result that trials are compared by.
        mode: "max" or "min", the better end of the metric; by default what its name tells: "min" for a loss or an
            error, "max" for an accuracy or a score. Needed where the name tells nothing.
        spark: the session to use; the active one by default. Spark Connect sessions will do.
        agents: how many trials run at a time; by default one for each slot (`spark.task.cpus` cores) of the session.
        **options: trials (run at most so many), dir (run directories are made here; default `sparktrain-runs`), name
            (of the run; default the function's name and the time, for a run of its own), store_timeout (how long the
            run outlives an outage of its store, default 300 s; then it ends, and can be resumed), data_version (what
            you call the data), allow_changed (of "code", "space", "data", "metric", "seed" and "gang": what may differ
            from the run that the directory has), retry_failed (run trials again that have failed, with the code as it
            is now), seed (of the run; `ctx.seed` follows from it and the trial's id), trial_timeout and timeout
            (seconds, `timedelta`, or "90s", "5m", "2h"), hang_timeout (a trial that has reported steps, and reports
            none for so long, is ended; default 120 s where `ctx.keras_callbacks()` tells its steps, none for what calls
            `ctx.report` alone), start_timeout (how long to wait while there are no agents, default 300 s), retries
            (times a trial is run again after its process, agent or executor was lost, default 3), max_failures (the
            sweep stops when so many trials have failed; by default when those that start first, two for each slot and
            at least three, fail in the same way; None: never), workers_per_trial and backend (members of the gang that
            trains each trial, default 1, and what connects them; as of `run`), gpus (for each member), log_limit (bytes
            of a member's log that are kept, default 1 GiB), env and forward_env (variables of the trials' environment,
            by value, and by name in the driver's), code_limit (bytes that the function may have with all that it takes
            along, default 60 MiB), preload (modules that are imported before trials start; by default those that
            `train` uses), progress (False: show nothing).

    Returns:
        What became of each trial, best first to find under `.best`. The same is in `results.json` of the run directory.

    Raises:
        UserError: the call is wrong, and nothing was started.
        InfraError: the cluster failed; `results.json` has what was done until then.
        KeyboardInterrupt: Ctrl-C; no training process is left, and `results.json` has what was done until then.
    """
    check_not_nested("sweep")
    chosen = options_of(SweepOptions, metric=metric, mode=mode, **options)
    return _alone(compose(train, space, chosen), chosen.progress, spark, agents)


@users_call
def launch(
    spark: Session | None, map_fun: Callable[..., Any], args_dict: Mapping[str, Sequence[Any]], **options: Any
) -> SweepResult:
    """Call `map_fun` once for each position of the lists in `args_dict`, each in a fresh process on a Spark executor.

    The lists must have equal lengths; `map_fun` may return nothing. Options, blocking and errors as of `sweep`.
    """
    check_not_nested("launch")
    agents = options.pop("agents", None)
    chosen = options_of(SweepOptions, **options)
    return _alone(compose(map_fun, zipped(args_dict), chosen), chosen.progress, spark, agents)


@users_call
def run(
    train: Callable[..., Any],
    params: Mapping[str, Any] | None = None,
    *,
    workers: int,
    backend: Backend | str = AUTO,
    spark: Session | None = None,
    agents: int | None = None,
    **options: Any,
) -> RunResult:
    """Call `train` once in each member of a gang of `workers`, which train together: one process on each agent.

    Blocks until every member has ended, and shows progress meanwhile. When a member is lost, the gang is formed again,
    and goes on from its last checkpoint. Call it in the driver, in any thread, as `sweep`.

    Args:
        train: the training function. It takes the parameters by name, and `ctx` (a `TrainContext`) if it names it; what
            it returns in the chief, which is rank 0, is the result: a number, a flat dict of numbers, or nothing.
        params: its parameters.
        workers: members that train.
        backend: what connects them: "horovod", "tensorflow" (collectives, or parameter servers), or "none" (nothing
            does: each member runs by itself, and knows its rank). By default Horovod where driver and executors have
            it, else TensorFlow; the first line of the run says which, and why.
        spark: the session to use; the active one by default. Spark Connect sessions will do.
        agents: how many agents to start; by default one for each member. More than that stand by for lost ones,
            and all are alike then: see `docs/sessions.md`, GPUs.
        **options: ps and evaluator (parameter servers, and whether there is an evaluator; members of their own, with
            backend "tensorflow" alone), min_workers (go on with so many when agents are lost for good; default: wait
            for all), max_restarts (times the gang is formed again, default 3), hang_timeout (a member that reports no
            step for so long is ended, default 120 s), metric and mode (the entry of the result that must be there, and
            that checkpoints are compared by; mode as of `sweep`), and, as of `sweep`, dir, name, seed, timeout,
            start_timeout, gpus, log_limit, env, forward_env, code_limit, preload and progress.

    Returns:
        What the chief returned, and where model and logs are. `results.json` of the run directory has it as a sweep of
        one trial.

    Raises:
        UserError: the call is wrong, and nothing was started.
        RunFailedError: the training function failed; the error names the member, and has its traceback.
        RunLostError: members were lost more often than `max_restarts`.
        RunStoppedError: `timeout` has passed.
        InfraError: the cluster failed.
        KeyboardInterrupt: Ctrl-C; no training process is left.
    """
    check_not_nested("run")
    chosen = options_of(RunOptions, workers=workers, backend=backend, **options)
    composed = compose(train, single({} if params is None else params), chosen)
    return run_end(composed, _alone(composed, chosen.progress, spark, agents)).result()


@users_call
def resume(
    directory: str,
    *,
    spark: Session | None = None,
    agents: int | None = None,
    retry_failed: bool = False,
    progress: bool = True,
    env: Mapping[str, str] | None = None,
) -> SweepResult | RunResult:
    """Go on with the run in `directory`, as it was begun, without the program that began it.

    Trials that have a result stay as they are; the others are run, from their newest checkpoint where they have one. A
    run that has ended well gives its result at once. The same call of `sweep` or `run` as before, with the same `dir`
    and `name`, resumes too. Blocks as these do.

    Args:
        directory: of the run, `dir/name`.
        spark: the session to use; the active one by default.
        agents: how many trials run at a time, as of `sweep`.
        retry_failed: run trials again that have failed, too.
        progress: False: show nothing.
        env: variables of the trials' environment, as of `sweep`; needed when the run was begun with some.

    Returns:
        What the call that began the run would have returned.

    Raises:
        UserError: there is no run, another driver is on it, or its files are damaged: see `sparktrain fsck`.
        The errors of `sweep` or `run`.
    """
    check_not_nested("resume")
    composed = compose_again(directory, retry_failed, env)
    made = _alone(composed, progress, spark, agents)
    return run_end(composed, made).result() if composed.plan.kind == "run" else made


def run_target(
    target: Target,
    params: Mapping[str, Any],
    options: RunOptions,
    *,
    session: Callable[[], Any],
    agents: int | None = None,
    display: Display | None = None,
) -> RunEnd:
    """A run for the command line, to which a failure is a result too; `session` as of `sweep_target`."""
    composed = compose(target, single(params), options)
    return run_end(composed, _with_session(composed, options.progress, session, agents, display))


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
    return _with_session(compose(target, space, options), options.progress, session, agents, display)


def resume_target(
    directory: str,
    *,
    session: Callable[[], Any],
    agents: int | None = None,
    retry_failed: bool = False,
    display: Display | None = None,
    env: Mapping[str, str] | None = None,
) -> SweepResult | RunEnd:
    """A run that is resumed for the command line; `session` as of `sweep_target`."""
    composed = compose_again(directory, retry_failed, env)
    made = _with_session(composed, True, session, agents, display)
    return run_end(composed, made) if composed.plan.kind == "run" else made


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

    @users_call
    def sweep(
        self, train: Callable[..., Any], space: SpaceLike, *, metric: str, mode: Mode | None = None, **options: Any
    ) -> SweepResult:
        """As `sparktrain.sweep`, on the agents of this pool. Raises PoolError when it is closed."""
        chosen = options_of(SweepOptions, metric=metric, mode=mode, **options)
        return self._call(compose(train, space, chosen), chosen)

    @users_call
    def launch(
        self, map_fun: Callable[..., Any], args_dict: Mapping[str, Sequence[Any]], **options: Any
    ) -> SweepResult:
        """As `sparktrain.launch`, on the agents of this pool. Raises PoolError when it is closed."""
        chosen = options_of(SweepOptions, **options)
        return self._call(compose(map_fun, zipped(args_dict), chosen), chosen)

    @users_call
    def run(
        self,
        train: Callable[..., Any],
        params: Mapping[str, Any] | None = None,
        *,
        workers: int,
        backend: Backend | str = AUTO,
        **options: Any,
    ) -> RunResult:
        """As `sparktrain.run`, on the agents of this pool. Raises PoolError when it is closed."""
        chosen = options_of(RunOptions, workers=workers, backend=backend, **options)
        composed = compose(train, single({} if params is None else params), chosen)
        return run_end(composed, self._call(composed, chosen)).result()

    def close(self) -> None:
        """End what runs, and give the slots back; again does nothing. Blocks for some seconds at most."""
        self._agents.close()

    def _call(self, composed: PreparedRun, options: Options) -> SweepResult:
        preflight.check_gpus(self._facts, composed.spec.gpus)
        preflight.check_failures(self._facts, composed.spec.retries)
        preflight.check_pool(self.agents, composed.spec.gang.size)
        self._agents.check_free()
        composed = composed.authorized(self._agents.spark).attached(self._agents.who())
        display = choose_display(quiet=not options.progress)
        if (done := _finished(composed, display)) is not None:
            return done
        return _run(self._agents, composed, self.agents, display)


@users_call
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
    check_not_nested("pool")
    session, facts = session_of(spark)
    preflight.check_cluster(facts)
    count = preflight.agents_for(facts, agents, None)
    started = AgentPool(session, facts, count, module_names(preload), seconds(idle_timeout, "idle_timeout"))
    started.open()
    return Pool(started, facts)


def _with_session(
    composed: PreparedRun, progress: bool, session: Callable[[], Any], agents: int | None, display: Display | None
) -> SweepResult:
    """A run in a session that is made once the call is known to be right."""
    preflight.check_agents(agents)
    shown = display or choose_display(quiet=not progress)
    if not composed.needs_session and (done := _finished(composed.attached(), shown)) is not None:
        return done
    with session() as spark:
        return _alone(composed, progress, spark, agents, shown)


def _alone(
    composed: PreparedRun,
    progress: bool,
    spark: Session | None,
    agents: int | None,
    display: Display | None = None,
) -> SweepResult:
    """A run with agents of its own."""
    there = admit(composed, spark, agents)
    shown = display or choose_display(quiet=not progress)
    if (done := _finished(there.composed, shown)) is not None:
        return done
    preload = there.composed.plan.preload
    own = AgentPool(there.session, there.facts, there.agents, preload, None, there.without_gpus)
    try:
        own.open()
        return _run(own, there.composed, there.agents, shown)
    finally:
        own.close()


def _finished(composed: PreparedRun, display: Display) -> SweepResult | None:
    """The result of a run in which nothing is left to do, which is told; None for any other."""
    if (done := finished(composed)) is not None:
        display.start()
        display.tell(nothing_run(done))
        display.close()
    return done


def _run(agents: AgentPool, composed: PreparedRun, count: int, display: Display) -> SweepResult:
    """Run, write the result, and raise what ended the run before its time."""
    if composed.choice is not None and composed.choice.tentative:
        composed = composed.settled(agents.have(HOROVOD, composed.spec.start_timeout_s))
    composed = composed.begun()
    work = composed.work(count, display, agents.who())
    display.start()
    for line in opening(composed):
        display.tell(line)
    try:
        ran, was_interrupted = agents.run(work)
    finally:
        display.close()
    made = result(composed, ran, work.journal)
    if was_interrupted:
        raise KeyboardInterrupt(interrupted(made))
    if ran.end.ending == Ending.UNLOADABLE and ran.end.failure is not None:
        raise unloadable(composed, ran.end.failure)
    if (failure := agents.failure(ran, composed.spec.start_timeout_s)) is not None:
        raise failure
    return made
