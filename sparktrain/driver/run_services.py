"""What is served while a run lasts: its TensorBoard, its page, and the feeds of its streams."""

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Event

from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import TrialId
from sparktrain.base.threads import spawn
from sparktrain.base.wings import from_wing
from sparktrain.display.progress import Display
from sparktrain.driver.agent_sources import slots_of_feeds
from sparktrain.driver.engines.engine import Engine
from sparktrain.driver.feeds.stream_jobs import FeedSettings, StreamFeeds
from sparktrain.driver.pool import AgentPool
from sparktrain.driver.prepare.attached_run import AttachedRun
from sparktrain.driver.prepare.checked_call import CheckedCall
from sparktrain.driver.slots.slot_holders import HOLDERS
from sparktrain.rundir.board_address import announced
from sparktrain.runs.additions.stop_requests import pending_stops, stop_names
from sparktrain.runs.locate import RunLocation
from sparktrain.state.run_machine import TIMEOUT_GRACE_S
from sparktrain.store.localfs import LocalStore

STOPS_S = 1.0
"""Interval at which a run looks for what users ask it to stop, in a folder."""
REMOTE_STOPS_S = 4.0
"""The same in any other store, where each look is a request to a service that other runs use too."""

logger = logging.getLogger("sparktrain")


@contextmanager
def served_board(run: AttachedRun, engine: Engine, display: Display) -> Iterator[None]:
    """Serve TensorBoard for a run that wants it, and show its URL. Raises SpecError, OSError.

    It listens on this machine alone where all agents are on it, otherwise where executors reach the coordinator.
    """
    if not run.call.observers.tensorboard:
        yield
        return
    address = engine.address()
    store = run.definition.store
    layout = run.definition.layout
    feed = from_wing("BoardFeed")(RunLocation(store, layout), SystemClock())
    with from_wing("Board").start(
        store, layout.path, bind=address.bind, host=address.in_browsers, feed=feed.follow
    ) as board:
        display.print_line(f"{layout.path}: TensorBoard: {board.url}")
        # A driver in a container of YARN prints into the log of the container: `sparktrain submit` reads the URL here.
        with announced(store, layout, board.url):
            yield


@contextmanager
def served_page(run: AttachedRun, agents: AgentPool, display: Display) -> Iterator[None]:
    """Serve the live page of a run that wants it, where its TensorBoard would be, and show its URL. Raises OSError."""
    if not run.call.observers.page:
        yield
        return

    definition = run.definition

    def stop(trial: int | None) -> None:
        if trial is None or definition.plan.kind == "run":
            agents.stop(definition.spec.name, "stopped on its page", TIMEOUT_GRACE_S)
        else:
            agents.stop_trial(definition.spec.name, TrialId(trial), "stopped on its page")

    address = agents.engine.address()
    # A process of its own reads the run directory for the page, so that browsers cost the driver nothing.
    with from_wing("LivePage").start(
        definition.where, bind=address.bind, host=address.in_browsers, on_stop=stop
    ) as page:
        display.print_line(f"{definition.layout.path}: page: {page.url}")
        yield


@contextmanager
def performed_stops(run: AttachedRun, agents: AgentPool) -> Iterator[None]:
    """Do what users ask in the run directory: stop the run, or one of its trials. Blocks on the store; raises OSError.

    Requests from before the context are of earlier drivers, and left aside, but for those of a call that a lost
    coordinator has handed on, or that waited for its driver.
    """
    store = run.definition.store
    layout = run.definition.layout
    name = run.definition.spec.name
    old_stops = run.call.resume_rules.old_stops
    if old_stops is None:
        old_stops = frozenset() if run.replaces else stop_names(store, layout)
    known_ids = set(old_stops)
    over = Event()
    look_s = STOPS_S if isinstance(store, LocalStore) else REMOTE_STOPS_S

    def perform() -> None:
        while not over.wait(look_s):
            try:
                requests = pending_stops(store, layout, known_ids)
            except OSError as error:  # a request can wait for the store
                logger.debug("requests to stop cannot be read now: %s", error)
                continue
            for request in requests:
                known_ids.add(request.id)
                if request.trial is None or run.definition.plan.kind == "run":
                    agents.stop(name, request.reason, request.grace_s)
                else:
                    agents.stop_trial(name, TrialId(request.trial), request.reason)

    spawn(perform, "sparktrain-stops")
    try:
        yield
    finally:
        over.set()


@contextmanager
def fed_streams(call: CheckedCall, agents: AgentPool) -> Iterator[StreamFeeds | None]:
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
