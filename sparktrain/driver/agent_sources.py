"""Where a run gets its agents, and whether it fits there: checks of engine, cluster and directory before any starts."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from sparktrain.cluster import preflight
from sparktrain.config.data_sources import PushedSource, StreamSource
from sparktrain.config.environment import KERAS_BACKEND
from sparktrain.config.gpu_slices import slice_in_pool
from sparktrain.config.quantities import MIB
from sparktrain.driver.backend_choice import check_inherited_keras
from sparktrain.driver.engines.engine import Engine
from sparktrain.driver.feeds.feeding_slots import FeedingSlots, feeding_slots
from sparktrain.driver.pool import POOL_TIMES, AgentPool, PoolTimes
from sparktrain.driver.prepare.attached_run import AttachedRun, attach
from sparktrain.driver.prepare.checked_call import CheckedCall
from sparktrain.driver.slots.session_pools import SESSION_POOLS
from sparktrain.usercode.preload import keras_left_by_pool


class Admitted(NamedTuple):
    """A run that its engine, its cluster and its directory have room for."""

    run: AttachedRun
    engine: Engine
    agents: int
    """Number of agents, in all."""
    without_gpus: int = 0
    """Number of them on executors of their own, without GPUs."""


class OwnAgents:
    """Agents that start for one run and end with it, or those of other calls that have the slots."""

    def __init__(self, engine: Engine, times: PoolTimes = POOL_TIMES) -> None:
        self.engine = engine
        self._times = times
        self._pool: AgentPool | None = None

    def admit(self, call: CheckedCall) -> Admitted:
        """Check a call against the engine, and attach its run. Blocks on the engine, the ResourceManager and the store.

        Raises UserError; writes nothing but a probe of the store.
        """
        call = _with_notice(call, self.engine)
        spec = call.definition.spec
        engine = self.engine.sharing(spec.gpu_mib)
        _check_fit(call, engine)
        engine.check_cluster()
        agents, without_gpus = engine.agents_for(spec, call.slots.agents, call.trials, call.slots.concurrent)
        slots_of_feeds(call, engine, agents)
        return Admitted(attach(call, engine), engine, agents, without_gpus)

    def pool(self, admitted: Admitted) -> AbstractContextManager[AgentPool]:
        """The agents for a run, until the context ends. Raises SessionError, PoolError."""
        return self._opened(admitted)

    @contextmanager
    def _opened(self, admitted: Admitted) -> Iterator[AgentPool]:
        run, engine, agents, without_gpus = admitted
        pool = AgentPool(engine, agents, run.definition.plan.preload, None, without_gpus, self._times)
        gang = run.definition.spec.gang
        # Where Spark jobs write the data first, agents that hold all slots would keep those jobs waiting forever.
        submit = not (engine.runs_jobs and run.waits_for_spark())
        with SESSION_POOLS.entered(pool, gang.size + gang.standby, submit=submit) as shared_pool:
            self._pool = shared_pool
            yield shared_pool

    def stop(self, run: str, reason: str, grace_s: float) -> None:
        """Stop a run, if it is on: it is advised to stop, and ended `grace_s` later. Any thread."""
        if (pool := self._pool) is not None:
            pool.stop(run, reason, grace_s)


class HeldAgents(OwnAgents):
    """Agents that start for the first of several runs and end with the context: later runs start at once."""

    def __init__(self, engine: Engine, times: PoolTimes = POOL_TIMES) -> None:
        super().__init__(engine, times)
        self._until_end = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._until_end.close()

    def admit(self, call: CheckedCall) -> Admitted:
        """See base class; for a later run as `PoolAgents.admit`."""
        return super().admit(call) if self._pool is None else PoolAgents(self._pool).admit(call)

    def pool(self, admitted: Admitted) -> AbstractContextManager[AgentPool]:
        """The agents, which stay open. Raises SessionError, PoolError."""
        if self._pool is not None:
            return nullcontext(self._pool)
        return nullcontext(self._until_end.enter_context(super().pool(admitted)))


@dataclass(frozen=True)
class LateAgents:
    """As `OwnAgents`, on an engine that is started only when something is left to do."""

    engine: Callable[[], AbstractContextManager[Engine]]


class PoolAgents:
    """The agents of a pool that is open."""

    def __init__(self, pool: AgentPool) -> None:
        self._pool = pool

    @property
    def engine(self) -> Engine:
        """The engine of the pool."""
        return self._pool.engine

    def admit(self, call: CheckedCall) -> Admitted:
        """Check a call against the pool, and attach its run. Blocks on the store.

        Raises UserError, such as PoolError when the pool is closed, or on a run of this name.
        """
        call = _with_notice(_sliced(call, self.engine.gpu_mib), self.engine)
        if note := keras_left_by_pool(call.definition.plan.preload, self._pool.preload):
            call = replace(call, notes=(*call.notes, note))
        _check_fit(call, self.engine)
        agents = self._pool.agents
        gang = call.definition.spec.gang
        seats = gang.size + gang.standby
        preflight.check_standby(agents, None, gang, "the pool", f"open it with sparktrain.pool(agents={seats})")
        preflight.check_pool(agents, gang.size)
        slots_of_feeds(call, self.engine, agents)
        self._pool.check_name(call.definition.spec.name)
        most = agents if call.slots.concurrent is None else min(agents, call.slots.concurrent * gang.size)
        return Admitted(attach(call, self.engine, self._pool.driver_identity()), self.engine, most)

    def pool(self, admitted: Admitted) -> AbstractContextManager[AgentPool]:
        """The pool, which stays open."""
        return nullcontext(self._pool)

    def stop(self, run: str, reason: str, grace_s: float) -> None:
        """As `OwnAgents.stop`."""
        self._pool.stop(run, reason, grace_s)


OpenAgents = OwnAgents | PoolAgents
AgentSource = OpenAgents | LateAgents


def _with_notice(call: CheckedCall, engine: Engine) -> CheckedCall:
    """The call with the engine's default of `notice`, where it has none of its own. Raises SpecError."""
    spec = call.definition.spec
    if spec.notice is not None or (address := engine.notice) is None:
        return call
    return call.with_spec(replace(spec, notice=address))


def _sliced(call: CheckedCall, gpu_mib: int) -> CheckedCall:
    """A run on agents of a pool that use so many MiB of a GPU each; 0: all of it. Raises ResourceError for more."""
    spec = call.definition.spec
    mib = slice_in_pool(spec.gpu_mib, gpu_mib)
    return call if mib == spec.gpu_mib else call.with_spec(replace(spec, gpu_memory=mib * MIB))


def _check_fit(call: CheckedCall, engine: Engine) -> None:
    """Check that a run goes with its engine, also on agents that have started. Raises UserError."""
    spec = call.definition.spec
    engine.check_run(spec)
    engine.check_data(call.data)
    if engine.inherits:
        check_inherited_keras(spec.gang, call.keras.chosen or call.env.get(KERAS_BACKEND, ""), call.keras.needed)


def slots_of_feeds(call: CheckedCall, engine: Engine, agents: int) -> FeedingSlots:
    """As `feeding_slots`, for the streams of a run. Raises ResourceError; SessionError for a session that is gone."""
    streams = call.data.streams
    slots = engine.slots if engine.runs_jobs else _slots_beside(streams)
    pushed = all(isinstance(stream, PushedSource) for stream in streams.values())
    return feeding_slots(tuple(streams), call.definition.spec.gang, agents, slots, held=engine.runs_jobs, pushed=pushed)


def _slots_beside(streams: Mapping[str, StreamSource | PushedSource]) -> int | None:
    """The slots of the session that streams come from, where agents have none of them."""
    source = next((stream for stream in streams.values() if isinstance(stream, StreamSource)), None)
    if source is None:
        return None
    from sparktrain.driver.feeds.feed_job import slots_of  # a run on this machine alone needs no Spark

    return slots_of(source)
