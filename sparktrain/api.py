"""The calls of the user: wiring, no decisions."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from sparktrain.boundary import users_call
from sparktrain.config.call_option import documented_by, settled
from sparktrain.config.option_catalog import (
    LaunchKeywords,
    PoolKeywords,
    PoolLaunchKeywords,
    PoolRunKeywords,
    PoolSweepKeywords,
    ResumeKeywords,
    RunKeywords,
    SweepKeywords,
)
from sparktrain.display.live import choose_display
from sparktrain.display.progress import Display
from sparktrain.driver.engines.engine import Engine
from sparktrain.driver.engines.local_engine import LocalMachine
from sparktrain.driver.engines.selection import engine_of
from sparktrain.driver.execution import AgentSource, LateAgents, OwnAgents, PoolAgents, execute
from sparktrain.driver.finish import run_end
from sparktrain.driver.forwarded_env import environment
from sparktrain.driver.options import Options, RunOptions, SweepOptions
from sparktrain.driver.pool import AgentPool
from sparktrain.driver.prepare import PreparedRun, compose, compose_again
from sparktrain.nesting import check_not_nested
from sparktrain.results.run_result import RunEnd, RunResult
from sparktrain.results.sweep_result import SweepResult
from sparktrain.search.space import Space, single, zipped
from sparktrain.usercode.target import Target

if TYPE_CHECKING:
    from sparktrain.cluster.spark_facts import Session

LateEngine = Callable[[], AbstractContextManager[Engine]]
"""Starts an engine, which is stopped when the context ends."""
SpaceLike = Space | Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]


@users_call
@documented_by(SweepKeywords)
def sweep(
    train: Callable[..., Any],
    space: SpaceLike,
    *,
    spark: "Session | LocalMachine | None" = None,
    **options: Unpack[SweepKeywords],
) -> SweepResult:
    """Call `train` once for each set of parameters in `space`, each in a fresh process on a Spark executor.

    Blocks until every trial has ended, and shows progress meanwhile. A trial that fails is a result. Call it in the
    driver, in any thread: calls at the same time share the session's slots, and one that wants too many is refused.

    Args:
        train: the training function. It takes the parameters by name, and `ctx` (a `TrainContext`) if it names it; it
            returns a number, or a flat dict of numbers.
        space: a dict of lists or `grid(...)` (every combination), `zipped(...)` (position by position), or a list of
            dicts.
        spark: the session to use; the active one by default. Spark Connect sessions will do, and `sparktrain.local()`
            trains on this machine without Spark.
        **options: the options that `SweepKeywords` in `sparktrain.config.option_catalog` defines, such as metric,
            dir and name.

    Returns:
        What became of each trial, best first to find under `.best`. The same is in `results.json` of the run directory.

    Raises:
        UserError: the call is wrong, and nothing was started.
        InfraError: the cluster failed; `results.json` has what was done until then.
        KeyboardInterrupt: Ctrl-C; no training process is left, and `results.json` has what was done until then.
    """
    return _sweep("sweep", SweepKeywords, train, space, spark, options)


@users_call
@documented_by(LaunchKeywords)
def launch(
    spark: "Session | LocalMachine | None",
    map_fun: Callable[..., Any],
    args_dict: Mapping[str, Sequence[Any]],
    **options: Unpack[LaunchKeywords],
) -> SweepResult:
    """Call `map_fun` once for each position of the lists in `args_dict`, each in a fresh process on a Spark executor.

    A short form of `sweep(map_fun, zipped(args_dict), spark=spark, ...)` that needs no `metric`. It blocks, returns and
    raises as `sweep` does.

    Args:
        spark: the session to use; None for the active one.
        map_fun: the training function, as of `sweep`. Without `metric` it may return nothing.
        args_dict: a list of values for each of its parameters; the lists have equal lengths.
        **options: the options that `LaunchKeywords` in `sparktrain.config.option_catalog` defines: those of `sweep`,
            none of them required.
    """
    return _sweep("launch", LaunchKeywords, map_fun, zipped(args_dict), spark, options)


@users_call
@documented_by(RunKeywords)
def run(
    train: Callable[..., Any],
    params: Mapping[str, Any] | None = None,
    *,
    spark: "Session | LocalMachine | None" = None,
    **options: Unpack[RunKeywords],
) -> RunResult:
    """Call `train` once in each member of a gang of `workers`, which train together: one process on each agent.

    Blocks until every member has ended, and shows progress meanwhile. When a member is lost, the gang is formed again,
    and resumes from its last checkpoint. Call it in the driver, in any thread, as `sweep`.

    Args:
        train: the training function. It takes the parameters by name, and `ctx` (a `TrainContext`) if it names it; what
            it returns in the chief, which is rank 0, is the result: a number, a flat dict of numbers, or nothing.
        params: its parameters.
        spark: the session to use; the active one by default. Spark Connect sessions will do, and `sparktrain.local()`
            trains on this machine without Spark.
        **options: the options that `RunKeywords` in `sparktrain.config.option_catalog` defines, such as workers,
            dir and name.

    Returns:
        What the chief returned, and where model and logs are. `results.json` of the run directory has it as a sweep of
        one trial.

    Raises:
        UserError: the call is wrong, and nothing was started.
        RunFailedError: the training function failed; the error names the member, and has its traceback.
        RunLostError: members were lost more often than `max_retries`.
        RunStoppedError: `timeout` has passed.
        InfraError: the cluster failed.
        KeyboardInterrupt: Ctrl-C; no training process is left.
    """
    check_not_nested("run")
    chosen = RunOptions(**settled(RunKeywords, options, "run"))
    composed = compose(train, single({} if params is None else params), chosen)
    return run_end(composed, _alone(composed, chosen.asked["progress"], spark, chosen.asked["agents"])).result()


@users_call
@documented_by(ResumeKeywords)
def resume(
    directory: str, *, spark: "Session | LocalMachine | None" = None, **options: Unpack[ResumeKeywords]
) -> SweepResult | RunResult:
    """Resume the run in `directory` as it was started, without the program that started it.

    Trials that have a result stay as they are; the others run, from their newest checkpoint where they have one. A run
    that has ended well gives its result at once. The same call of `sweep` or `run` as before, with the same `dir` and
    `name`, resumes too. Blocks as these do.

    Args:
        directory: of the run, `dir/name`.
        spark: the session to use, or `sparktrain.local()`; the active session by default.
        **options: the options that `ResumeKeywords` in `sparktrain.config.option_catalog` defines. `env` is needed when
            the run was started with some.

    Returns:
        What the call that started the run would have returned.

    Raises:
        UserError: there is no run, another driver is on it, or its files are damaged: see `sparktrain fsck`.
        The errors of `sweep` or `run`.
    """
    check_not_nested("resume")
    asked = settled(ResumeKeywords, options, "resume")
    composed = compose_again(directory, asked["retry_failed"], environment(asked["env"], asked["forward_env"]))
    composed = composed.limited(asked["max_concurrent_trials"], asked["agents"])
    made = _alone(composed, asked["progress"], spark, asked["agents"])
    return run_end(composed, made).result() if composed.plan.kind == "run" else made


def run_target(
    target: Target,
    params: Mapping[str, Any],
    options: RunOptions,
    *,
    engine: LateEngine,
    display: Display | None = None,
) -> RunEnd:
    """A run for the command line, to which a failure is a result too; `engine` as of `sweep_target`."""
    composed = compose(target, single(params), options)
    return run_end(composed, _execute(composed, LateAgents(engine, options.asked["agents"]), True, display))


def sweep_target(
    target: Target,
    space: SpaceLike,
    options: SweepOptions,
    *,
    engine: LateEngine,
    display: Display | None = None,
) -> SweepResult:
    """A sweep for the command line: `engine` starts it once the call is known to be right."""
    return _execute(compose(target, space, options), LateAgents(engine, None), True, display)


def resume_target(
    directory: str,
    *,
    engine: LateEngine,
    max_concurrent_trials: int | None = None,
    agents: int | None = None,
    retry_failed: bool = False,
    display: Display | None = None,
    env: Mapping[str, str] | None = None,
) -> SweepResult | RunEnd:
    """A run that is resumed for the command line; `engine` as of `sweep_target`."""
    composed = compose_again(directory, retry_failed, env).limited(max_concurrent_trials, agents)
    made = _execute(composed, LateAgents(engine, agents), True, display)
    return run_end(composed, made) if composed.plan.kind == "run" else made


class Pool:
    """Agents that stay between calls: a notebook's next cell starts at once. Made by `sparktrain.pool`.

    Its methods block, and belong to the thread that made it.
    """

    def __init__(self, agents: AgentPool) -> None:
        self._agents = agents

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
    @documented_by(PoolSweepKeywords)
    def sweep(self, train: Callable[..., Any], space: SpaceLike, **options: Unpack[PoolSweepKeywords]) -> SweepResult:
        """As `sparktrain.sweep`, on the agents of this pool. Raises PoolError when it is closed.

        Args:
            **options: those of `sparktrain.sweep` that concern no session.
        """
        chosen = SweepOptions(**settled(PoolSweepKeywords, options, "sweep"))
        return self._call(compose(train, space, chosen), chosen)

    @users_call
    @documented_by(PoolLaunchKeywords)
    def launch(
        self, map_fun: Callable[..., Any], args_dict: Mapping[str, Sequence[Any]], **options: Unpack[PoolLaunchKeywords]
    ) -> SweepResult:
        """As `sparktrain.launch`, on the agents of this pool. Raises PoolError when it is closed.

        Args:
            **options: those of `sparktrain.launch` that concern no session.
        """
        chosen = SweepOptions(**settled(PoolLaunchKeywords, options, "launch"))
        return self._call(compose(map_fun, zipped(args_dict), chosen), chosen)

    @users_call
    @documented_by(PoolRunKeywords)
    def run(
        self, train: Callable[..., Any], params: Mapping[str, Any] | None = None, **options: Unpack[PoolRunKeywords]
    ) -> RunResult:
        """As `sparktrain.run`, on the agents of this pool. Raises PoolError when it is closed.

        Args:
            **options: those of `sparktrain.run` that concern no session.
        """
        chosen = RunOptions(**settled(PoolRunKeywords, options, "run"))
        composed = compose(train, single({} if params is None else params), chosen)
        return run_end(composed, self._call(composed, chosen)).result()

    def close(self) -> None:
        """End what runs, and give the slots back; again does nothing. Blocks for some seconds at most."""
        self._agents.close()

    def _call(self, composed: PreparedRun, options: Options) -> SweepResult:
        return _execute(composed, PoolAgents(self._agents), options.asked["progress"])


@users_call
@documented_by(PoolKeywords)
def pool(spark: "Session | LocalMachine | None" = None, **options: Unpack[PoolKeywords]) -> Pool:
    """Start agents that stay for several calls. Use it as `with sparktrain.pool(...) as pool: pool.sweep(...)`.

    Returns at once, while the agents start. The slots are given back at the end of the `with` block, by `close()`, by
    Ctrl-C during a call, and after `idle_timeout` without a call (the next call starts agents anew).

    Args:
        spark: the session to use, or `sparktrain.local()`; the active session by default.
        **options: the options that `PoolKeywords` in `sparktrain.config.option_catalog` defines.

    Raises:
        UserError: there is no session, or it has too few slots.
    """
    check_not_nested("pool")
    asked = settled(PoolKeywords, options, "pool")
    engine = engine_of(spark)
    engine.check_cluster()
    count, _ = engine.agents_for(None, asked["agents"], None)
    started = AgentPool(engine, count, asked["preload"], asked["idle_timeout"])
    started.open()
    return Pool(started)


def _sweep(
    call: str,
    keywords: type,
    train: Callable[..., Any],
    space: SpaceLike,
    spark: "Session | LocalMachine | None",
    options: Mapping[str, Any],
) -> SweepResult:
    """A sweep with agents of its own, for the public function `call`, with the options that it takes."""
    check_not_nested(call)
    chosen = SweepOptions(**settled(keywords, options, call))
    return _alone(compose(train, space, chosen), chosen.asked["progress"], spark, None)


def _alone(
    composed: PreparedRun, progress: bool, spark: "Session | LocalMachine | None", agents: int | None
) -> SweepResult:
    """A run with agents of its own."""
    return _execute(composed, OwnAgents(engine_of(spark), agents), progress)


def _execute(composed: PreparedRun, agents: AgentSource, progress: bool, display: Display | None = None) -> SweepResult:
    return execute(composed, agents, display or choose_display(quiet=not progress))
