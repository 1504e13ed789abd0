"""The public calls that train: `sweep`, `launch`, `run`, `resume`, `extend`, `refit` and `pool`.

Wiring alone; other modules decide.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

from sparktrain.base.boundary import users_call
from sparktrain.base.nesting import check_not_nested
from sparktrain.base.optional_packages import require_spark
from sparktrain.config.call_arguments import (
    ExtendArguments,
    LaunchArguments,
    PoolArguments,
    PoolLaunchArguments,
    PoolRunArguments,
    PoolSweepArguments,
    RefitArguments,
    ResumeArguments,
    RunArguments,
    SweepArguments,
)
from sparktrain.config.call_option import documented_by, settled
from sparktrain.config.option_catalog import (
    ExtendKeywords,
    LaunchKeywords,
    PooledSearchKeywords,
    PoolKeywords,
    PoolLaunchKeywords,
    PoolRunKeywords,
    PoolSweepKeywords,
    RefitKeywords,
    ResumeKeywords,
    RunKeywords,
    SweepKeywords,
)
from sparktrain.config.quantities import MIB
from sparktrain.display.pool_state import pool_html, pool_line
from sparktrain.driver.agent_sources import HeldAgents, OpenAgents, OwnAgents, PoolAgents
from sparktrain.driver.backend_choice import keras_setting
from sparktrain.driver.clustered.run_handle import RunHandle, attached, submitted
from sparktrain.driver.continuation.extension import Extension
from sparktrain.driver.continuation.refit import compose_refit
from sparktrain.driver.engines.local_engine import LocalMachine
from sparktrain.driver.engines.selection import engine_of
from sparktrain.driver.finish import run_end
from sparktrain.driver.launch import launch as launch_call
from sparktrain.driver.options import RunOptions, SweepOptions
from sparktrain.driver.pool import AgentPool
from sparktrain.driver.prepare.checked_call import compose
from sparktrain.driver.prepare.stored_call import compose_again
from sparktrain.errors import SpecError
from sparktrain.results.run_result import RunResult
from sparktrain.results.sweep_result import SweepResult, directory_of
from sparktrain.search.space import Space, single, zipped
from sparktrain.usercode.preload import pool_modules

if TYPE_CHECKING:
    from sparktrain.cluster.spark_facts import Session

SpaceLike = Space | Mapping[str, Any] | Sequence[Mapping[str, Any]]


@users_call
@documented_by(SweepKeywords)
def sweep(
    train: Callable[..., Any],
    space: SpaceLike,
    *,
    spark: "Session | LocalMachine | None" = None,
    **options: Unpack[SweepArguments],
) -> SweepResult:
    """Call `train` once for each set of parameters in `space`, each in a fresh process on a Spark executor.

    Blocks until every trial has ended, and shows progress meanwhile. A failed trial is a result, and raises nothing.
    Call it in the driver, from any thread. Concurrent calls share the session's slots.
    An open pool has its slots for itself: where it leaves too few, the call raises PoolError.

    Args:
        train: the training function. It takes the parameters by name, and a `TrainContext` if it has a parameter
            `ctx`; it returns a number, or a flat dict of numbers.
        space: a dict of lists or `grid(...)` (every combination), `zipped(...)` (position by position), a list of
            dicts, or a dict with distributions such as `loguniform(1e-5, 1e-1)` or `space(...)` (a sampler proposes).
        spark: the session to use; the active one by default. Spark Connect sessions work too, and
            `sparktrain.local()` trains on this machine without Spark.
        **options: the options that `SweepKeywords` in `sparktrain.config.option_catalog` defines, such as metric,
            dir and name.

    Returns:
        The result with one entry for each trial in `.trials`, and the best trial as `.best`. `results.json` in the run
        directory has the same content.

    Raises:
        UserError: the call is wrong, and raises before anything starts. Or executors cannot load the function, the data
            is unsuitable for training, or the sampler raised: then the run ends, and keeps its results.
        InfraError: the cluster failed; `results.json` has the trials that had ended.
        KeyboardInterrupt: Ctrl-C; no training process is left, and `results.json` has the trials that had ended.
    """
    _check_place("sweep", spark)
    chosen = SweepOptions(settled(LaunchKeywords, options, "sweep", SweepKeywords))
    return launch_call(compose(train, space, chosen), agents_of(spark))


@users_call
@documented_by(LaunchKeywords)
def launch(
    spark: "Session | LocalMachine | None",
    map_fun: Callable[..., Any],
    args_dict: Mapping[str, Sequence[Any]],
    **options: Unpack[LaunchArguments],
) -> SweepResult:
    """Call `map_fun` once for each position of the lists in `args_dict`, each in a fresh process on a Spark executor.

    A short form of `sweep(map_fun, zipped(args_dict), spark=spark, ...)` that needs no `metric`. It blocks, returns and
    raises as `sweep` does.

    Args:
        spark: the session to use; None for the active one.
        map_fun: the training function, as for `sweep`. Without `metric` it may return nothing.
        args_dict: a list of values for each parameter of the function; the lists have equal lengths.
        **options: the options that `LaunchKeywords` in `sparktrain.config.option_catalog` defines: those of `sweep`,
            none of them required.
    """
    _check_place("launch", spark)
    chosen = SweepOptions(settled(LaunchKeywords, options, "launch"))
    return launch_call(compose(map_fun, zipped(args_dict), chosen), agents_of(spark))


@users_call
@documented_by(RunKeywords)
def run(
    train: Callable[..., Any],
    params: Mapping[str, Any] | None = None,
    *,
    spark: "Session | LocalMachine | None" = None,
    **options: Unpack[RunArguments],
) -> RunResult:
    """Train one model in a gang of `workers` processes: each process calls `train` once, in its own slot.

    Blocks until every member has ended, and shows progress meanwhile. When a member is lost, the gang restarts and
    resumes from its newest checkpoint. Call it in the driver, from any thread, like `sweep`.

    Args:
        train: the training function. It takes the parameters by name, and a `TrainContext` if it has a parameter
            `ctx`. Its return value in the chief, which is rank 0, is the result: a number, a flat dict of numbers, or
            nothing.
        params: the parameters of the function.
        spark: the session to use; the active one by default. Spark Connect sessions work too, and
            `sparktrain.local()` trains on this machine without Spark.
        **options: the options that `RunKeywords` in `sparktrain.config.option_catalog` defines, such as workers,
            dir and name.

    Returns:
        The metrics that the chief returned, and the paths of the model and the logs. `results.json` in the run
        directory has the same content, as a sweep of one trial.

    Raises:
        UserError: the call is wrong, and raises before anything starts. Or executors cannot load the function, or the
            data is unsuitable for training: then the run ends, and keeps its results.
        RunFailedError: the training function failed; the error names the member and has its traceback.
        RunLostError: members were lost more often than `max_retries` allows.
        RunStoppedError: `timeout` passed before the function returned.
        InfraError: the cluster failed.
        KeyboardInterrupt: Ctrl-C; no training process is left.
    """
    _check_place("run", spark)
    chosen = RunOptions(**options)
    call = compose(train, single({} if params is None else params), chosen)
    return run_end(call, launch_call(call, agents_of(spark))).result()


@users_call
@documented_by(ResumeKeywords)
def resume(
    directory: str | PathLike[str], *, spark: "Session | LocalMachine | None" = None, **options: Unpack[ResumeArguments]
) -> SweepResult | RunResult:
    """Resume the run in `directory` with its own function, space and options, without the program that started it.

    Trials that have a result keep it. The others run, from their newest checkpoint if they have one. For a complete run
    the call returns the result at once. If you repeat the call of `sweep` or `run` with the same `dir` and `name`, it
    resumes the run too. Blocks as `sweep` and `run` do.

    Args:
        directory: the run directory, `dir/name`: a path or a URL.
        spark: the session to use, or `sparktrain.local()`; the active session by default.
        **options: the options that `ResumeKeywords` in `sparktrain.config.option_catalog` defines. If the run started
            with `env`, pass `env` again, because sparktrain stores its values nowhere.

    Returns:
        What the call that started the run would have returned: a `SweepResult` or a `RunResult`.

    Raises:
        UserError: there is no run, another driver owns it, or its files are corrupt (see `sparktrain fsck`). The other
            errors are those of `sweep` and `run`.
    """
    _check_place("resume", spark)
    keywords = settled(ResumeKeywords, options, "resume")
    call = compose_again(directory_of(directory, "directory"), keywords)
    sweep_result = launch_call(call, agents_of(spark))
    return run_end(call, sweep_result).result() if call.definition.plan.kind == "run" else sweep_result


@users_call
@documented_by(ExtendKeywords)
def extend(
    run: str | PathLike[str] | SweepResult,
    space: SpaceLike | None = None,
    *,
    spark: "Session | LocalMachine | None" = None,
    **options: Unpack[ExtendArguments],
) -> SweepResult:
    """Continue a finished or stopped sweep with more trials or a wider space, under its name and in its directory.

    Trials that have a result keep it, and the sampler learns from all of them. The run uses its stored function. If you
    repeat the call, it adds the same number of trials once more, so call `resume` after a lost driver. Blocks as
    `sweep` does.

    Args:
        run: the run directory, a path or a URL, or its result.
        space: a dict with the parameters that get other values. You can add values to a choice or a list, and widen a
            range. For a space with conditions, pass the whole space.
        spark: the session to use, or `sparktrain.local()`; the active session by default.
        **options: the options that `ExtendKeywords` in `sparktrain.config.option_catalog` defines.

    Returns:
        The result with all trials, former ones included.

    Raises:
        UserError: the call would add nothing, or the space is not wider. The other errors are those of `resume` and
            `sweep`.
    """
    _check_place("extend", spark)
    keywords = settled(ExtendKeywords, options, "extend")
    call = compose_again(directory_of(run), keywords, Extension(keywords.trials, space))
    return launch_call(call, agents_of(spark))


@users_call
def submit(
    train: Callable[..., Any],
    space: "SpaceLike | None" = None,
    *,
    kind: Literal["sweep", "run", "launch"] = "sweep",
    spark: "Session | LocalMachine | None" = None,
    **options: Any,
) -> RunHandle:
    """Start a run that does not need this process any more, and return at once.

    Its coordinator is in the cluster. `docs/sessions.md` describes how long it lives where. From any process on any
    day, `attach` returns the same handle. Blocks until Spark has its agents.

    Args:
        train: the training function, as for the call that `kind` names.
        space: what that call takes after the function: a space, for a run the parameters, for launch a dict of lists.
        kind: which call it is.
        spark: the session to use; the active one by default.
        **options: the options of that call. `dir` must be a store that all hosts reach.

    Returns:
        The handle of the run: `result()`, `stop()`, `progress`, and `await handle`.

    Raises:
        UserError: the call is wrong, and raises before anything starts. InfraError: the cluster failed.
    """
    if kind not in ("sweep", "run", "launch"):
        raise SpecError(f"kind ({kind!r}) must be 'sweep', 'run' or 'launch'")
    _check_place("submit", spark)
    if options.setdefault("coordinator", "cluster") != "cluster":
        raise SpecError("submit() with coordinator='driver': a run that outlives this process has it in the cluster")
    if kind == "run":
        call = compose(train, single({} if space is None else cast(Mapping[str, Any], space)), RunOptions(**options))
    else:
        accepted = SweepKeywords if kind == "sweep" else LaunchKeywords
        chosen = SweepOptions(settled(LaunchKeywords, options, kind, accepted))
        call = compose(train, zipped(cast(Any, space)) if kind == "launch" else space, chosen)
    return submitted(call, agents_of(spark))


@users_call
def attach(directory: str | PathLike[str]) -> RunHandle:
    """The handle of the run in `directory`, whichever process has started it. Needs no Spark; blocks on the store.

    Raises RunDirectoryError when there is no run, a copy that nothing has resumed, or one of another sparktrain.
    """
    return RunHandle(attached(directory_of(directory, "directory")))


def sweep_as(
    call: str,
    train: Callable[..., Any],
    space: Space,
    options: Mapping[str, Any],
    *,
    spark: "Session | LocalMachine | None",
    pool: "Pool | None",
) -> SweepResult:
    """Sweep for the public function `call` of another module, which takes the options of `launch`."""
    check_agents_of(call, spark, pool)
    return sweep_on(agents_of(spark if pool is None else pool), call, train, space, options)


def check_agents_of(call: str, spark: "Session | LocalMachine | None", pool: "Pool | None") -> None:
    """Check where the public function `call` of another module shall train. Raises SpecError, SessionError."""
    if pool is None:
        _check_place(call, spark)
    elif spark is not None:
        raise SpecError(f"{call}() is given spark= and pool=, and a pool has its session already: leave out spark=")


def sweep_on(
    agents: OpenAgents, call: str, train: Callable[..., Any], space: Space, options: Mapping[str, Any]
) -> SweepResult:
    """Sweep on `agents` for the public function `call` of another module, which takes the options of `launch`."""
    accepted = PooledSearchKeywords if isinstance(agents, PoolAgents) else LaunchKeywords
    chosen = SweepOptions(settled(LaunchKeywords, options, call, accepted))
    return launch_call(compose(train, space, chosen), agents)


def refit_on(
    agents: OpenAgents, run: SweepResult, train: Callable[..., Any] | None, options: Mapping[str, Any]
) -> RunResult:
    """Refit a trial on `agents` for a public function of another module, which takes the options of `refit`.

    `train` is the function; None for that of the sweep.
    """
    call = compose_refit(directory_of(run), {}, options, train)
    return run_end(call, launch_call(call, agents)).result()


def held_agents(spark: "Session | LocalMachine | None") -> HeldAgents:
    """Agents for several runs of one call. Blocks on a session. Raises UserError."""
    return HeldAgents(engine_of(spark))


@users_call
@documented_by(RefitKeywords)
def refit(
    run: str | PathLike[str] | SweepResult,
    params: Mapping[str, Any] | None = None,
    *,
    train: Callable[..., Any] | None = None,
    spark: "Session | LocalMachine | None" = None,
    **options: Unpack[RefitArguments],
) -> RunResult:
    """Continue training the best trial of a sweep in a gang of any size: a new run, from the checkpoint of the trial.

    The new run starts from a copy of the checkpoint. By default its directory is beside that of the sweep. Blocks as
    `run` does.

    Args:
        run: the sweep's result, or its run directory: a path or a URL.
        params: parameters that replace those of the trial, such as a larger number of epochs.
        train: the training function; by default the one in the run directory.
        spark: the session to use, or `sparktrain.local()`; the active session by default.
        **options: those of `RefitKeywords`. The defaults of metric, mode and dir are those of the sweep.

    Raises:
        NoBestTrialError: no trial has succeeded. CheckpointError: its checkpoint is corrupt. UserError: as for `run`.
    """
    _check_place("refit", spark)
    call = compose_refit(directory_of(run), params or {}, options, train)
    return run_end(call, launch_call(call, agents_of(spark))).result()


class Pool:
    """Agents that stay between calls, so that a notebook's next cell starts at once. `sparktrain.pool` creates it.

    The methods block. Call them from the thread that created the pool.
    """

    def __init__(self, agents: AgentPool) -> None:
        self._agents = agents

    def __repr__(self) -> str:
        return pool_line(self._agents.state())

    def _repr_html_(self) -> str:
        return pool_html(self._agents.state())

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def agents(self) -> int:
        """The number of agents: how many members can train at a time."""
        return self._agents.agents

    @users_call
    @documented_by(PoolSweepKeywords)
    def sweep(self, train: Callable[..., Any], space: SpaceLike, **options: Unpack[PoolSweepArguments]) -> SweepResult:
        """Sweep as `sparktrain.sweep` does, on the agents of this pool. Raises PoolError when the pool is closed.

        Args:
            **options: those of `sparktrain.sweep`, except those about the session.
        """
        chosen = SweepOptions(settled(LaunchKeywords, options, "sweep", PoolSweepKeywords))
        return launch_call(compose(train, space, chosen), agents_of(self))

    @users_call
    @documented_by(PoolLaunchKeywords)
    def launch(
        self,
        map_fun: Callable[..., Any],
        args_dict: Mapping[str, Sequence[Any]],
        **options: Unpack[PoolLaunchArguments],
    ) -> SweepResult:
        """Sweep as `sparktrain.launch` does, on the agents of this pool. Raises PoolError when the pool is closed.

        Args:
            **options: those of `sparktrain.launch`, except those about the session.
        """
        chosen = SweepOptions(settled(LaunchKeywords, options, "launch", PoolLaunchKeywords))
        return launch_call(compose(map_fun, zipped(args_dict), chosen), agents_of(self))

    @users_call
    @documented_by(PoolRunKeywords)
    def run(
        self, train: Callable[..., Any], params: Mapping[str, Any] | None = None, **options: Unpack[PoolRunArguments]
    ) -> RunResult:
        """Train as `sparktrain.run` does, on the agents of this pool. Raises PoolError when the pool is closed.

        Args:
            **options: those of `sparktrain.run`, except those about the session.
        """
        chosen = RunOptions(settled(RunKeywords, options, "run", PoolRunKeywords))
        call = compose(train, single({} if params is None else params), chosen)
        return run_end(call, launch_call(call, agents_of(self))).result()

    def close(self) -> None:
        """End all runs and release the slots. A second call does nothing. Blocks for some seconds at most."""
        self._agents.close()


@users_call
@documented_by(PoolKeywords)
def pool(spark: "Session | LocalMachine | None" = None, **options: Unpack[PoolArguments]) -> Pool:
    """Start agents that stay for several calls. Use it as `with sparktrain.pool(...) as pool: pool.sweep(...)`.

    Returns at once, while the agents start. The pool releases its slots at the end of the `with` block, by `close()`,
    by Ctrl-C during a call if no other one is on it, and after `idle_timeout` without a call; the next call then starts
    new agents. Any number of calls may be on it, in several threads: they share the agents by `weight` and `priority`.

    Args:
        spark: the session to use, or `sparktrain.local()`; the active session by default.
        **options: the options that `PoolKeywords` in `sparktrain.config.option_catalog` defines.

    Returns:
        A `Pool` with `sweep`, `launch` and `run`, which take all options except those about the session.

    Raises:
        UserError: there is no session, or it has too few slots.
    """
    _check_place("pool", spark)
    keywords = settled(PoolKeywords, options, "pool")
    engine = engine_of(spark).sharing((keywords.gpu_memory or 0) // MIB)
    engine.check_cluster()
    count, _ = engine.agents_for(None, keywords.agents, None)
    preload = keywords.preload
    if preload is None:
        preload = pool_modules(keras_setting(lambda: None, {})[0])
    started = AgentPool(engine, count, preload, keywords.idle_timeout)
    started.open()
    return Pool(started)


def agents_of(place: "Session | LocalMachine | Pool | None") -> OpenAgents:
    """The agents of a pool, or new ones on a session or this machine. Blocks on a session. Raises UserError."""
    return PoolAgents(place._agents) if isinstance(place, Pool) else OwnAgents(engine_of(place))


@users_call
def session(
    master: str | None = None, conf: Mapping[str, str] | None = None, name: str = "sparktrain"
) -> "AbstractContextManager[Session]":
    """Start Spark for a program, without the lines that Spark prints: `with session("local[2]"): sweep(...)`.

    Entering the block starts Spark, which takes some seconds, and makes its session the active one. Leaving the block
    stops Spark. The driver's warnings and errors go into a file, which stays only if it has errors. If your
    `SPARK_CONF_DIR` has a `log4j2.properties`, that file decides. Calls accept any other session too: this function is
    a convenience.

    Args:
        master: such as `local[2]`, `yarn` or `spark://host:7077`. The default is the master that `spark-submit` sets;
            without `spark-submit` it is a cluster of two executors on this machine.
        conf: Spark's configuration, such as `{"spark.executor.memory": "4g"}`.
        name: the name of the application.

    Raises:
        SessionError: PySpark is not installed, Spark cannot start, or Spark runs in this process already.
    """
    require_spark("session()")
    from sparktrain.cluster.spark_session import program_session  # a run on this machine alone needs no Spark

    return program_session(master, {} if conf is None else conf, name)


def _check_place(call: str, spark: "Session | LocalMachine | None") -> None:
    """Refuse a call inside of a trial, and one that needs a session where there is no PySpark. Raises UserError."""
    # A program with a call at module level would start Spark within each trial that imports it.
    check_not_nested(call)
    if not isinstance(spark, LocalMachine):
        require_spark(f"{call}()")
