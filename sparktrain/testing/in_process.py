"""A training function called in the user's own process, for tests and debuggers: without Spark, Java, or a child."""

import importlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from sparktrain.base import nesting
from sparktrain.base.boundary import users_call
from sparktrain.base.clock import Clock, SystemClock
from sparktrain.config.backends import AUTO, Backend, backend_named
from sparktrain.config.data_sources import sources_of
from sparktrain.config.environment import variables
from sparktrain.config.gang_spec import GangSpec
from sparktrain.config.metric_names import metric_name
from sparktrain.config.param_values import described
from sparktrain.config.quantities import count
from sparktrain.config.replication import Replica, replication
from sparktrain.config.store_address import STORE_TIMEOUT_S
from sparktrain.driver.backend_choice import choose, keras_setting
from sparktrain.driver.data.data_plan import DataPlan
from sparktrain.driver.data.run_data import plan_data
from sparktrain.errors import NestedCallError, RunFailedError, SpecError
from sparktrain.protocol.member_call import MemberCall, MemberGang
from sparktrain.protocol.pipe_messages import Assignment, Reported
from sparktrain.search.space import single
from sparktrain.state.outcome import Failure, Outcome, Report
from sparktrain.store.held_folders import held
from sparktrain.testing.local_run import LocalRun
from sparktrain.testing.lone_member import lone_gang, lone_strategies, refuse_cluster
from sparktrain.testing.process_guard import guarded
from sparktrain.training import attempt, gang_join, process_setup
from sparktrain.training.context import TrainContext
from sparktrain.training.frameworks.tensorflow.horovod_names import import_hook
from sparktrain.training.notices import issued_notices
from sparktrain.training.source_homes import Homes
from sparktrain.usercode.serialize import preload_choice

_entered = threading.Lock()


class LocalContext(TrainContext):
    """The `ctx` of a training function that is called in this process: see `sparktrain.testing.local_context`.

    What a trial's `ctx` has, and what a test wants to look at. Belongs to the thread that entered the context.
    """

    def __init__(self, assignment: Assignment, run: LocalRun, clock: Clock, gang: gang_join.JoinedGang) -> None:
        super().__init__(assignment, run, clock, gang)
        self._run = run
        self._ended = False
        if self.size > 1:
            self._strategies = lone_strategies(gang, self._call.gang.backend, clock)

    @property
    def reports(self) -> Sequence[Report]:
        """The reports so far, oldest first: each has `step` and `metrics`."""
        return tuple(self._run.reports)

    @property
    def saved_steps(self) -> Sequence[int]:
        """Steps of the checkpoints in the directory that count, oldest first; complete once the context is left."""
        return tuple(checkpoint.step for checkpoint in self._run.checkpoints.retained)

    @property
    def saved_bytes(self) -> Mapping[int, int]:
        """Bytes of each of these checkpoints, by its step. Blocks on the local disk. Raises OSError."""
        return self._run.saved()

    @property
    def notices(self) -> Sequence[str]:
        """Lines for the user that a trial's result would have, such as that all members had the same batch."""
        return issued_notices()

    def advise_stop(self) -> None:
        """Have `should_stop` return True from now on, as when the run wants to end. Any thread."""
        self._run.advise_stop()

    def stop_after_report(self) -> None:
        """Have `should_stop` return True after the first `report`: a loop that checks it ends early."""
        self._run.observe = lambda message: self.advise_stop() if isinstance(message, Reported) else None

    def call(self, train: Callable[..., Any]) -> dict[str, float]:
        """Call `train` as a trial does, with the parameters and `ctx`; the metrics in what it returns.

        Imports what a trial would have imported before, seeds the generators again, and blocks until `train` has
        returned and what it saved is a checkpoint. Raises whatever `train` raises, and RunFailedError for a result
        that is none, or lacks the metric. Once in a context.
        """
        self._prepare(train)
        ended = attempt.conclude(attempt.call(train, self), self, self._gang, self._call.metric)
        if isinstance(ended, Failure):
            raise RunFailedError(ended.summary)
        return ended.metrics

    def outcome(self, train: Callable[..., Any]) -> Outcome:
        """Like `call`, but returns the outcome of a trial: `metrics`, or a `failure` in place of an exception."""
        self._prepare(train)
        return attempt.outcome_of(train, self, self._gang, self._call.metric, Homes(), self._clock)

    def _prepare(self, train: Callable[..., Any]) -> None:
        if self._ended:
            raise SpecError("call() and outcome() call a function once in a context: enter another local_context()")
        self._ended = True
        for module in preload_choice(train).modules:
            with suppress(ImportError):  # as in a zygote: the function's own import reports it
                importlib.import_module(module)
        process_setup.seed(self.seed)


@users_call
def local_context(
    params: Mapping[str, Any] | None = None,
    size: int = 1,
    *,
    backend: Backend | str = AUTO,
    mirrored: bool = False,
    directory: str | os.PathLike[str] | None = None,
    metric: str | None = None,
    seed: int = 0,
    env: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
    fold: int = 0,
    folds: int = 1,
) -> AbstractContextManager[LocalContext]:
    """The `ctx` to call a training function with in this very process, for pytest and debuggers.

        with sparktrain.testing.local_context({"lr": 0.1}, directory=tmp_path) as ctx:
            result = train(**ctx.params, ctx=ctx)
        assert ctx.reports[-1].metrics["loss"] < 1

    The context is that of a trial: reports, checkpoints, data shards and callbacks are made by the same code as in a
    training process. Within it, the working directory is an empty one, as for a trial. On leaving it, what was saved
    last is waited for (300 s at most), and environment, working directory, streams, signal handlers and seeds of this
    process are as before. For one thread of the process at a time; not from within a trial.

    Args:
        params: the hyperparameters; what `sparktrain.run` takes as `params`.
        size: members of the gang in which this process has rank 0. With 2 or more, `ctx.shard`, `ctx.scale_lr` and the
            like give what rank 0 has, and what needs the other members raises GangNeededError.
        backend: what would connect them, as of `sparktrain.run`. With "none", members never need each other.
        mirrored: operations of the gang work as if the other members had the values of this one.
        directory: a local directory for checkpoints and for what the function leaves; another context on the same
            directory resumes from its newest checkpoint. By default a temporary one, which is removed.
        metric: the entry that the result must have, for `LocalContext.call` and `LocalContext.outcome`.
        seed: `ctx.seed`.
        env: variables of the environment, as of `sparktrain.run`.
        data: datasets for `ctx.dataset`, as of `sparktrain.run`. In a gang of `size` this process has its first share.
        fold: `ctx.fold`, from 0 to `folds - 1`.
        folds: `ctx.folds`, as of `sparktrain.sweep`.

    Raises:
        SpecError: an argument is wrong.
        DataError: a dataset cannot be trained on as it is.
        NestedCallError: the process is in a context already, or is a trial.
        OSError: the directory cannot be used.
        CheckpointError: none of the checkpoints in the directory can be read.
    """
    call = _member_call(params, size, backend, metric, seed, env)
    plan = plan_data(sources_of(data or {}), STORE_TIMEOUT_S)
    call = replace(call, replica=_replica(fold, folds))
    if directory is not None and "://" in os.fspath(directory):
        raise SpecError(
            f"directory ({os.fspath(directory)!r}) is a URL, and a local context writes to a local directory: pass the "
            "path of one, such as tmp_path of pytest"
        )
    return _context(call, plan, None if directory is None else Path(directory).absolute(), mirrored)


@contextmanager
def _context(call: MemberCall, plan: DataPlan, directory: Path | None, mirrored: bool) -> Iterator[LocalContext]:
    with ExitStack() as stack:
        _enter(stack)
        run = LocalRun(directory or _temporary(stack), call, plan)
        stack.callback(run.stop)
        assignment = run.start()
        stack.enter_context(guarded())
        gang = lone_gang(call.gang.size, call.gang.backend, mirrored) if call.gang.size > 1 else gang_join.alone()
        _be_trial(assignment, gang)
        import_hook.connect(gang, call.gang.backend)
        context = LocalContext(assignment, run, SystemClock(), gang)
        import_hook.provide(context)
        stack.callback(context.finish)
        yield context


def _member_call(
    params: Mapping[str, Any] | None,
    size: int,
    backend: Backend | str,
    metric: str | None,
    seed: int,
    env: Mapping[str, Any] | None,
) -> MemberCall:
    """The arguments, as a coordinator would send them. Raises SpecError."""
    (case,) = single({} if params is None else params)
    members = count(size, "size", 1)
    if type(seed) is not int:
        raise SpecError(f"seed is {described(seed)}, a whole number is expected; pass an int")
    chosen = Backend.NONE
    environment = variables(env or {})
    if members > 1:
        chosen = _auto(members, environment) if backend == AUTO else backend_named(backend)
    sent = json.loads(msgspec.json.encode(case))
    return MemberCall(
        params=sent,
        seed=seed,
        metric=metric_name(metric),
        env=environment,
        gang=MemberGang(size=members, backend=chosen),
    )


def _auto(members: int, environment: Mapping[str, str]) -> Backend:
    """What a run would choose for a gang, as far as variables decide."""
    return choose(GangSpec(workers=members), keras=keras_setting(lambda: None, environment)).backend


def _replica(fold: int, folds: int) -> Replica:
    """The place in a cross-validation. Raises SpecError."""
    number = replication(1, folds).folds
    if (place := count(fold, "fold", 0)) >= number:
        raise SpecError(f"fold ({place}) must be below folds ({number}): folds count from 0")
    return Replica(fold=place, folds=number)


def _temporary(stack: ExitStack) -> Path:
    return stack.enter_context(held("local-context"))


def _enter(stack: ExitStack) -> None:
    if not _entered.acquire(blocking=False):
        raise NestedCallError(
            "sparktrain.testing.local_context() is entered while this process is in another one, and both would set "
            "its working directory and its environment: leave the first one before"
        )
    stack.callback(_entered.release)
    nesting.check_not_nested("testing.local_context")


def _be_trial(assignment: Assignment, gang: gang_join.JoinedGang) -> None:
    """Set up this process like that of a trial, as far as that can be undone."""
    call = assignment.call
    os.environ[nesting.MEMBER_KEY] = "1"
    os.environ.update(call.env)
    if call.gang.size > 1 and call.gang.backend is Backend.TENSORFLOW:
        os.environ["TF_CONFIG"] = gang.formation.tf_config()
        refuse_cluster(call.gang.size)
    os.chdir(assignment.work_dir)
    sys.argv[:] = ["sparktrain"]
    process_setup.seed(call.seed)
