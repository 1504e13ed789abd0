"""The only path from a prepared run to its result: with agents of its own, or on the agents of a pool."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Protocol

from sparktrain.board.board import Board
from sparktrain.clock import SystemClock
from sparktrain.cluster import preflight
from sparktrain.config.gpu_slices import slice_in_pool
from sparktrain.config.quantities import MIB
from sparktrain.display.progress import Display
from sparktrain.driver.admission import admit, check_fit, slots_of_feeds
from sparktrain.driver.backend_choice import HOROVOD
from sparktrain.driver.callbacks.callback_feed import CallbackFeed, listening
from sparktrain.driver.engines.engine import Engine
from sparktrain.driver.feeds.stream_feeds import FeedSettings, StreamFeeds
from sparktrain.driver.finish import finished, interrupted, result, unloadable
from sparktrain.driver.first_lines import nothing_run, opening
from sparktrain.driver.pool import POOL_TIMES, AgentPool, PoolTimes
from sparktrain.driver.prepare import PreparedRun
from sparktrain.driver.slot_holders import HOLDERS
from sparktrain.errors import PoolError
from sparktrain.ids import TrialId
from sparktrain.page.live_page import LivePage
from sparktrain.protocol.server_keys import server_keys
from sparktrain.results.sweep_result import SweepResult
from sparktrain.rundir.board_address import announced
from sparktrain.runs.board_feed import BoardFeed
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.next_commands import next_commands
from sparktrain.state.ending import Ending
from sparktrain.state.run_machine import TIMEOUT_GRACE_S


class AgentSource(Protocol):
    """Where a run gets its agents."""

    def perform(self, prepared: PreparedRun, display: Display) -> SweepResult:
        """Check the run against the engine and the run directory, and run it. Blocks. Raises as `sparktrain.sweep`."""
        ...


class StoppableAgents(AgentSource, Protocol):
    """A source with a run that another thread may stop."""

    def stop(self, reason: str, grace_s: float) -> None:
        """Stop the run that it performs, if any: it is advised to stop, and ended `grace_s` later. Any thread."""
        ...


def execute(prepared: PreparedRun, agents: AgentSource, display: Display) -> SweepResult:
    """Run the rest of a prepared run on `agents`, write its result, and return it. Blocks.

    Every public call and every command that trains ends here. Raises as `sparktrain.sweep`.
    """
    return agents.perform(prepared, display)


class OwnAgents:
    """Agents that start for one run and end with it."""

    def __init__(self, engine: Engine, agents: int | None, times: PoolTimes = POOL_TIMES) -> None:
        self._times = times
        self._engine = engine
        self._agent_count = agents
        self._pool: AgentPool | None = None

    def stop(self, reason: str, grace_s: float) -> None:
        """See `StoppableAgents`."""
        if (pool := self._pool) is not None:
            pool.stop(reason, grace_s)

    def perform(self, prepared: PreparedRun, display: Display) -> SweepResult:
        """See base class."""
        admitted = admit(prepared, self._engine, self._agent_count)
        if (finished_result := _finished(admitted.prepared, display)) is not None:
            return finished_result
        pool = AgentPool(
            admitted.engine, admitted.agents, admitted.prepared.plan.preload, None, admitted.without_gpus, self._times
        )
        self._pool = pool
        try:
            # Where Spark jobs write the data first, agents that hold all slots would keep those jobs waiting forever.
            pool.open(agents=not (admitted.engine.runs_jobs and admitted.prepared.waits_for_spark()))
            return _run(pool, admitted.prepared, display)
        finally:
            pool.close()


class LateAgents:
    """As `OwnAgents`, on an engine that is started only when something is left to do."""

    def __init__(self, engine: Callable[[], AbstractContextManager[Engine]], agents: int | None) -> None:
        self._engine = engine
        self._agent_count = agents

    def perform(self, prepared: PreparedRun, display: Display) -> SweepResult:
        """See base class."""
        preflight.check_agents(self._agent_count)
        if not prepared.needs_session and (finished_result := _finished(prepared.attached(), display)) is not None:
            return finished_result
        with self._engine() as engine:
            return OwnAgents(engine, self._agent_count).perform(prepared, display)


class PoolAgents:
    """The agents of a pool that is open."""

    def __init__(self, pool: AgentPool) -> None:
        self._pool = pool

    def stop(self, reason: str, grace_s: float) -> None:
        """See `StoppableAgents`."""
        self._pool.stop(reason, grace_s)

    def perform(self, prepared: PreparedRun, display: Display) -> SweepResult:
        """See base class. Raises PoolError when the pool is closed, or on another run."""
        engine = self._pool.engine
        prepared = _sliced(prepared, engine.gpu_mib)
        check_fit(prepared, engine)
        preflight.check_pool(self._pool.agents, prepared.spec.gang.size)
        slots_of_feeds(prepared, engine, self._pool.agents)
        self._pool.check_free()
        prepared = prepared.authorized(engine.tokens).attached(self._pool.driver_identity())
        prepared = replace(prepared, local=not engine.runs_jobs)
        if (finished_result := _finished(prepared, display)) is not None:
            return finished_result
        return _run(self._pool, prepared, display)


def _sliced(prepared: PreparedRun, gpu_mib: int) -> PreparedRun:
    """A run on agents of a pool that use so many MiB of a GPU each; 0: all of it. Raises ResourceError for more."""
    mib = slice_in_pool(prepared.spec.gpu_mib, gpu_mib)
    if mib == prepared.spec.gpu_mib:
        return prepared
    return prepared.with_spec(replace(prepared.spec, gpu_memory=mib * MIB))


def _finished(prepared: PreparedRun, display: Display) -> SweepResult | None:
    """The result of a run in which nothing is left to do, which is shown; None for any other."""
    if (finished_result := finished(prepared)) is not None:
        with listening(prepared) as feed:
            if feed is not None:
                feed.ended(finished_result)
        display.start()
        display.print_line(nothing_run(finished_result))
        display.close()
    return finished_result


def _run(agents: AgentPool, prepared: PreparedRun, display: Display) -> SweepResult:
    """Run, write the result, and raise the error that ended the run early."""
    if prepared.choice is not None and prepared.choice.tentative:
        prepared = prepared.settled(agents.have(HOROVOD, prepared.spec.start_timeout_s))
    # `run.json` takes the name before anything starts: of two drivers that pass here at once, one gets it.
    prepared = prepared.started()
    with listening(prepared) as feed:
        return _train(agents, prepared, display, feed)


def _train(agents: AgentPool, prepared: PreparedRun, display: Display, feed: CallbackFeed | None) -> SweepResult:
    """As `_run`, for a run that has its directory; `feed` reports to its callbacks."""
    display.start()
    try:
        for line in (*opening(prepared), *(f"{prepared.spec.name}: {note}" for note in agents.engine.notes)):
            display.print_line(line)
        prepared = prepared.owned(agents.driver_identity())
        with ExitStack() as stack:
            with _given_back(prepared):
                stack.enter_context(_board(prepared, agents.engine, display))
                stack.enter_context(_page(prepared, agents, display))
                prepared = _with_data(prepared, agents, display)
                streams = stack.enter_context(_streams(prepared, agents))
                work = prepared.work(agents.agents, display, agents.driver_identity())
                keys = server_keys(prepared.spec.gang, prepared.spec.name)
                work = replace(work, streams=streams, servers=keys, listener=feed)
            with _given_back(prepared, PoolError):  # its slots were taken while data was written
                ran, was_interrupted = agents.run(work)
    finally:
        display.close()
    sweep_result = result(prepared, ran, work.journal)
    if feed is not None:
        feed.ended(sweep_result)
    if was_interrupted:
        raise KeyboardInterrupt(interrupted(sweep_result, next_commands(prepared.plan, prepared.local)))
    if ran.end.ending == Ending.UNLOADABLE and ran.end.failure is not None:
        raise unloadable(prepared, ran.end.failure)
    if (failure := agents.failure(ran, prepared.spec.start_timeout_s)) is not None:
        raise failure
    return sweep_result


@contextmanager
def _given_back(prepared: PreparedRun, kind: type[BaseException] = BaseException) -> Iterator[None]:
    """Give up the run where an error keeps it from starting: a pool that stays open would answer as its owner."""
    try:
        yield
    except kind as error:
        prepared.give_back((str(error).strip() or type(error).__name__).splitlines()[0])
        raise


@contextmanager
def _board(prepared: PreparedRun, engine: Engine, display: Display) -> Iterator[None]:
    """Serve TensorBoard for a run that wants it, and show its URL. Raises SpecError, OSError.

    It listens on this machine alone where all agents are on it, otherwise where executors reach the coordinator.
    """
    if not prepared.tensorboard:
        yield
        return
    address = engine.address()
    run = prepared.layout
    feed = BoardFeed(RunLocation(prepared.store, run), SystemClock())
    with Board.start(prepared.store, run.path, bind=address.bind, host=address.in_browsers, feed=feed.follow) as board:
        display.print_line(f"{run.path}: TensorBoard: {board.url}")
        with announced(prepared.store, run, board.url):
            yield


@contextmanager
def _page(prepared: PreparedRun, agents: AgentPool, display: Display) -> Iterator[None]:
    """Serve the live page of a run that wants it, where its TensorBoard would be, and show its URL. Raises OSError."""
    if not prepared.page:
        yield
        return

    def stop(trial: int | None) -> None:
        if trial is None or prepared.plan.kind == "run":
            agents.stop("stopped on its page", TIMEOUT_GRACE_S)
        else:
            agents.stop_trial(TrialId(trial), "stopped on its page")

    address = agents.engine.address()
    where = prepared.store.where(prepared.layout.path)
    with LivePage.start(where, bind=address.bind, host=address.in_browsers, on_stop=stop) as page:
        display.print_line(f"{prepared.layout.path}: page: {page.url}")
        yield


@contextmanager
def _streams(prepared: PreparedRun, agents: AgentPool) -> Iterator[StreamFeeds | None]:
    """What feeds the streams of the run, until it ends; None without any."""
    if not (sources := prepared.data.streams):
        yield None
        return
    engine, feed_slots = agents.engine, slots_of_feeds(prepared, agents.engine, agents.agents)
    columns = {name: prepared.data.columns[name] for name in sources}
    settings = FeedSettings(feed_slots.tasks, warns=engine.runs_jobs and engine.slots is None)
    feeds = StreamFeeds(prepared.spec.name, sources, columns, prepared.spec.gang.workers, settings)
    if engine.runs_jobs:
        HOLDERS.take(feeds, engine.holder, feed_slots.slots, engine.slots, "slot for feeding tasks")
    try:
        with closing(feeds):
            yield feeds
    finally:
        HOLDERS.free(feeds)


def _with_data(prepared: PreparedRun, agents: AgentPool, display: Display) -> PreparedRun:
    """The run once its datasets are written: by Spark's jobs, which need the slots that agents would hold."""
    if not prepared.documents:
        return prepared
    if agents.engine.runs_jobs and prepared.waits_for_spark():
        agents.vacate("its slots write data first")
    return prepared.with_data(lambda line: display.print_line(f"{prepared.spec.name}: {line}"))
