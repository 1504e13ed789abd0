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
from sparktrain.datasets.manifest import MemberData
from sparktrain.display.progress import Display
from sparktrain.driver.admission import admit, check_fit, slots_of_feeds
from sparktrain.driver.backend_choice import HOROVOD
from sparktrain.driver.callbacks.callback_feed import CallbackFeed, listening
from sparktrain.driver.engines.engine import Engine
from sparktrain.driver.feeds.stream_feeds import FeedSettings, StreamFeeds
from sparktrain.driver.finish import finished, interrupted, result, unloadable
from sparktrain.driver.first_lines import nothing_run, opening
from sparktrain.driver.pool import POOL_TIMES, AgentPool, PoolTimes
from sparktrain.driver.prepare.attached_run import AttachedRun, attach
from sparktrain.driver.prepare.checked_call import CheckedCall
from sparktrain.driver.prepare.naming import NamedRun, take_name
from sparktrain.driver.prepare.owned_run import OwnedRun, claim
from sparktrain.driver.prepare.ready_run import request_of
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

    def perform(self, call: CheckedCall, display: Display) -> SweepResult:
        """Check the run against the engine and the run directory, and run it. Blocks. Raises as `sparktrain.sweep`."""
        ...


class StoppableAgents(AgentSource, Protocol):
    """A source with a run that another thread may stop."""

    def stop(self, reason: str, grace_s: float) -> None:
        """Stop the run that it performs, if any: it is advised to stop, and ended `grace_s` later. Any thread."""
        ...


def execute(call: CheckedCall, agents: AgentSource, display: Display) -> SweepResult:
    """Perform a checked call on `agents`, write its result, and return it. Blocks.

    Every public call and every command that trains ends here. Raises as `sparktrain.sweep`.
    """
    return agents.perform(call, display)


class OwnAgents:
    """Agents that start for one run and end with it."""

    def __init__(self, engine: Engine, times: PoolTimes = POOL_TIMES) -> None:
        self._times = times
        self._engine = engine
        self._pool: AgentPool | None = None

    def stop(self, reason: str, grace_s: float) -> None:
        """See `StoppableAgents`."""
        if (pool := self._pool) is not None:
            pool.stop(reason, grace_s)

    def perform(self, call: CheckedCall, display: Display) -> SweepResult:
        """See base class."""
        admitted = admit(call, self._engine)
        if (finished_result := _finished(admitted.run, display)) is not None:
            return finished_result
        preload = admitted.run.definition.plan.preload
        pool = AgentPool(admitted.engine, admitted.agents, preload, None, admitted.without_gpus, self._times)
        self._pool = pool
        try:
            # Where Spark jobs write the data first, agents that hold all slots would keep those jobs waiting forever.
            pool.open(agents=not (admitted.engine.runs_jobs and admitted.run.waits_for_spark()))
            return _run(pool, admitted.run, display)
        finally:
            pool.close()


class LateAgents:
    """As `OwnAgents`, on an engine that is started only when something is left to do."""

    def __init__(self, engine: Callable[[], AbstractContextManager[Engine]]) -> None:
        self._engine = engine

    def perform(self, call: CheckedCall, display: Display) -> SweepResult:
        """See base class."""
        preflight.check_agents(call.agents)
        if not call.needs_session and (finished_result := _finished(attach(call), display)) is not None:
            return finished_result
        with self._engine() as engine:
            return OwnAgents(engine).perform(call, display)


class PoolAgents:
    """The agents of a pool that is open."""

    def __init__(self, pool: AgentPool) -> None:
        self._pool = pool

    def stop(self, reason: str, grace_s: float) -> None:
        """See `StoppableAgents`."""
        self._pool.stop(reason, grace_s)

    def perform(self, call: CheckedCall, display: Display) -> SweepResult:
        """See base class. Raises PoolError when the pool is closed, or on another run."""
        engine = self._pool.engine
        call = _sliced(call, engine.gpu_mib)
        check_fit(call, engine)
        preflight.check_pool(self._pool.agents, call.definition.spec.gang.size)
        slots_of_feeds(call, engine, self._pool.agents)
        self._pool.check_free()
        run = attach(call, engine, self._pool.driver_identity())
        if (finished_result := _finished(run, display)) is not None:
            return finished_result
        return _run(self._pool, run, display)


def _sliced(call: CheckedCall, gpu_mib: int) -> CheckedCall:
    """A run on agents of a pool that use so many MiB of a GPU each; 0: all of it. Raises ResourceError for more."""
    spec = call.definition.spec
    mib = slice_in_pool(spec.gpu_mib, gpu_mib)
    return call if mib == spec.gpu_mib else call.with_spec(replace(spec, gpu_memory=mib * MIB))


def _finished(run: AttachedRun, display: Display) -> SweepResult | None:
    """The result of a run in which nothing is left to do, which is shown; None for any other."""
    if (finished_result := finished(run)) is not None:
        with listening(run) as feed:
            if feed is not None:
                feed.ended(finished_result)
        display.start()
        display.print_line(nothing_run(finished_result))
        display.close()
    return finished_result


def _run(agents: AgentPool, run: AttachedRun, display: Display) -> SweepResult:
    """Run, write the result, and raise the error that ended the run early."""
    choice = run.call.choice
    if choice is not None and choice.tentative:
        has_horovod = agents.have(HOROVOD, run.definition.spec.start_timeout_s)
        run = replace(run, call=run.call.with_backend(choice.settled(has_horovod)))
    # `run.json` takes the name before anything starts: of two drivers that pass here at once, one gets it.
    named = take_name(run)
    with listening(named) as feed:
        return _train(agents, named, display, feed)


def _train(agents: AgentPool, run: NamedRun, display: Display, feed: CallbackFeed | None) -> SweepResult:
    """As `_run`, for a run that has its directory; `feed` reports to its callbacks."""
    definition = run.definition
    spec = definition.spec
    display.start()
    try:
        for line in (*opening(run), *(f"{spec.name}: {note}" for note in agents.engine.notes)):
            display.print_line(line)
        owned = claim(run, agents.driver_identity())
        with ExitStack() as stack:
            with _given_back(owned):
                stack.enter_context(_board(run, agents.engine, display))
                stack.enter_context(_page(run, agents, display))
                data = _written_data(owned, agents, display)
                streams = stack.enter_context(_streams(run.call, agents))
                work = request_of(owned, agents.agents, display, data)
                keys = server_keys(spec.gang, spec.name)
                work = replace(work, streams=streams, servers=keys, listener=feed)
            with _given_back(owned, PoolError):  # its slots were taken while data was written
                ran, was_interrupted = agents.run(work)
    finally:
        display.close()
    sweep_result = result(definition, ran, owned.journal)
    if feed is not None:
        feed.ended(sweep_result)
    if was_interrupted:
        raise KeyboardInterrupt(interrupted(sweep_result, next_commands(definition.plan, run.local)))
    if ran.end.ending == Ending.UNLOADABLE and ran.end.failure is not None:
        raise unloadable(definition.plan.function, ran.end.failure)
    if (failure := agents.failure(ran, spec.start_timeout_s)) is not None:
        raise failure
    return sweep_result


@contextmanager
def _given_back(owned: OwnedRun, kind: type[BaseException] = BaseException) -> Iterator[None]:
    """Give up the run where an error keeps it from starting: a pool that stays open would answer as its owner."""
    try:
        yield
    except kind as error:
        owned.give_back((str(error).strip() or type(error).__name__).splitlines()[0])
        raise


@contextmanager
def _board(run: AttachedRun, engine: Engine, display: Display) -> Iterator[None]:
    """Serve TensorBoard for a run that wants it, and show its URL. Raises SpecError, OSError.

    It listens on this machine alone where all agents are on it, otherwise where executors reach the coordinator.
    """
    if not run.call.observers.tensorboard:
        yield
        return
    address = engine.address()
    store = run.definition.store
    layout = run.definition.layout
    feed = BoardFeed(RunLocation(store, layout), SystemClock())
    with Board.start(store, layout.path, bind=address.bind, host=address.in_browsers, feed=feed.follow) as board:
        display.print_line(f"{layout.path}: TensorBoard: {board.url}")
        with announced(store, layout, board.url):
            yield


@contextmanager
def _page(run: AttachedRun, agents: AgentPool, display: Display) -> Iterator[None]:
    """Serve the live page of a run that wants it, where its TensorBoard would be, and show its URL. Raises OSError."""
    if not run.call.observers.page:
        yield
        return

    definition = run.definition

    def stop(trial: int | None) -> None:
        if trial is None or definition.plan.kind == "run":
            agents.stop("stopped on its page", TIMEOUT_GRACE_S)
        else:
            agents.stop_trial(TrialId(trial), "stopped on its page")

    address = agents.engine.address()
    with LivePage.start(definition.where, bind=address.bind, host=address.in_browsers, on_stop=stop) as page:
        display.print_line(f"{definition.layout.path}: page: {page.url}")
        yield


@contextmanager
def _streams(call: CheckedCall, agents: AgentPool) -> Iterator[StreamFeeds | None]:
    """What feeds the streams of the run, until it ends; None without any."""
    if not (sources := call.data.streams):
        yield None
        return
    engine = agents.engine
    spec = call.definition.spec
    feed_slots = slots_of_feeds(call, engine, agents.agents)
    columns = {name: call.data.columns[name] for name in sources}
    settings = FeedSettings(feed_slots.tasks, warns=engine.runs_jobs and engine.slots is None)
    feeds = StreamFeeds(spec.name, sources, columns, spec.gang.workers, settings)
    if engine.runs_jobs:
        HOLDERS.take(feeds, engine.holder, feed_slots.slots, engine.slots, "slot for feeding tasks")
    try:
        with closing(feeds):
            yield feeds
    finally:
        HOLDERS.free(feeds)


def _written_data(owned: OwnedRun, agents: AgentPool, display: Display) -> MemberData | None:
    """Where the datasets are, once they are written: by Spark's jobs, which need the slots that agents would hold."""
    definition = owned.definition
    if not definition.documents:
        return None
    if agents.engine.runs_jobs and owned.run.waits_for_spark():
        agents.vacate("its slots write data first")
    return owned.write_data(lambda line: display.print_line(f"{definition.spec.name}: {line}"))
