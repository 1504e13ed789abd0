"""A call with its coordinator in the cluster, from the client: it starts the run, and follows it.

Nothing connects to the client. It takes the name, writes plan, code, data and call into the run directory by
put-if-absent, submits the agents with a ticket that names this directory, and reads from then on. What it asks later it
writes there too, such as a stop. Secrets travel in the ticket alone, which Spark pickles into the task as it does those
of a coordinator in the driver.
"""

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import msgspec

from sparktrain.base.clock import SystemClock
from sparktrain.base.threads import spawn
from sparktrain.base.wings import from_wing
from sparktrain.config.connect_server import ConnectServer
from sparktrain.display.progress import Display
from sparktrain.driver.agent_sources import OwnAgents
from sparktrain.driver.clustered.absent_client import lifetime_line, reached_server
from sparktrain.driver.clustered.cluster_call import ClusterCall, write_call
from sparktrain.driver.clustered.cluster_job import ClusterJob
from sparktrain.driver.clustered.coordinator_place import scout
from sparktrain.driver.clustered.following import CallFollower, error_of, interruptible
from sparktrain.driver.data.run_data import write_data
from sparktrain.driver.finish import finished, interrupted
from sparktrain.driver.first_lines import nothing_run, opening
from sparktrain.driver.prepare.attached_run import with_known_backend
from sparktrain.driver.prepare.checked_call import CheckedCall, Observers
from sparktrain.driver.prepare.naming import NamedRun, take_name
from sparktrain.errors import AgentsLostError, FunctionError, SparktrainError, SpecError
from sparktrain.executor.cluster_dialer import HOLD_S, JOIN_S
from sparktrain.protocol.certificates import issue, server_fingerprint
from sparktrain.protocol.coordinator_office import CoordinatorSecrets
from sparktrain.protocol.ticket import AgentTicket, CoordinatorHome
from sparktrain.results.sweep_result import SweepResult
from sparktrain.rundir.coordinator_folder import CoordinatorFolder
from sparktrain.runs.additions.stop_requests import ask_stop
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.next_commands import next_commands
from sparktrain.runs.sweep_outcome import SweepStatus
from sparktrain.state.run_machine import TIMEOUT_GRACE_S
from sparktrain.usercode.serialize import pickled

logger = logging.getLogger("sparktrain")
VALID_DAYS = 365.0
"""How long the certificates of a call are valid: no process could renew those in its tickets."""
LEAVE_S = 30.0
"""How long agents may take to leave once the run has ended."""
INTERRUPT_TIMEOUT_S = 60.0
"""How long Ctrl-C waits for the end of the run."""


@dataclass(frozen=True)
class StartedRun:
    """A run that agents have been submitted for."""

    run: NamedRun
    folder: CoordinatorFolder
    job: ClusterJob
    agents: int

    @property
    def place(self) -> RunLocation:
        """The run directory."""
        return RunLocation(self.run.definition.store, self.run.definition.layout)

    def failure(self) -> SparktrainError | None:
        """Why no agent is left; None while there are some."""
        if not self.job.join(0.0):
            return None
        return self.job.error or AgentsLostError("all agents have left, and the run has not ended; resume it")


@dataclass(frozen=True)
class StoredClusterCall:
    """A call that its run directory has, for the process that performs it."""

    run: NamedRun
    name: str
    """The name of its folder: see `RunLayout.coordinator`."""
    call: ClusterCall
    tokens: bytes
    """The token file of Hadoop that the client has; empty where the store needs none."""
    connect: ConnectServer | None = None
    """The Connect server that runs the agents, where executors reach it."""


def start_in_cluster(call: CheckedCall, agents: OwnAgents, display: Display, why: str) -> StartedRun | SweepResult:
    """Start a run with its coordinator in the cluster; the result of one in which nothing is left to do.

    Blocks until its agents are submitted. Raises as `sparktrain.sweep`, before the run has a directory where it can.
    """
    engine = agents.engine
    # The application of a classic session is that of this process, and has the agents.
    end = (
        ""
        if engine.is_remote
        else f"; Spark ends the run with this process, which has the application on {engine.name}"
    )
    cluster_call = store_for_cluster(call, agents, display, f"the coordinator runs in the cluster: {why}{end}")
    if isinstance(cluster_call, SweepResult):
        return cluster_call
    ticket = _ticket(cluster_call)
    job = ClusterJob(agents.engine, ticket, cluster_call.call.agents, cluster_call.call.without_gpus)
    job.start()
    definition = cluster_call.run.definition
    folder = CoordinatorFolder(definition.store, definition.layout.coordinator(cluster_call.name))
    if cluster_call.connect is not None:
        pause_s = cluster_call.connect.limits.heartbeat_s
        spawn(lambda: send_heartbeats(folder, job.join, pause_s), "sparktrain-client")
    return StartedRun(cluster_call.run, folder, job, cluster_call.call.agents)


def store_for_cluster(
    call: CheckedCall, agents: OwnAgents, display: Display, line: str
) -> StoredClusterCall | SweepResult:
    """Take the name of a run, and store what another process needs to perform the call; `line` names it for people.

    Returns the result of a run in which nothing is left to do. Blocks on Spark and the store; raises as
    `start_in_cluster`.
    """
    admitted = agents.admit(call)
    engine = admitted.engine
    if (sweep_result := finished(admitted.run)) is not None:
        display.print_line(nothing_run(sweep_result))
        return sweep_result
    keeper = admitted.run.tokens
    tokens = b"" if keeper is None or keeper.tokens is None else keeper.tokens.content
    server = engine.connect_server()
    report = scout(call, engine, tokens, server)
    run = with_known_backend(admitted.run, lambda: report.versions, inherits=engine.inherits)
    named = take_name(run)
    definition = named.definition
    lines = [line] if server is None else [line, lifetime_line(server, report)]
    for first_line in (*opening(named), *(f"{definition.spec.name}: {note}" for note in lines)):
        display.print_line(first_line)
    data = call.cache
    if definition.documents:
        refs = write_data(
            call.data,
            definition.documents,
            definition.store,
            definition.layout,
            lambda line: display.print_line(f"{definition.spec.name}: {line}"),
            definition.spec.gang.workers,
        )
        data = msgspec.structs.replace(data, sets=refs)
    name = uuid.uuid4().hex[:12]
    stored_call = ClusterCall.of(named.call, admitted.agents, admitted.without_gpus, data)
    write_call(definition.store, definition.layout, name, stored_call)
    return StoredClusterCall(named, name, stored_call, tokens, reached_server(server, report))


def launch_in_cluster(call: CheckedCall, agents: OwnAgents, display: Display, why: str) -> SweepResult:
    """Perform a checked call with its coordinator in the cluster, and follow it to its end. Blocks.

    Raises as `sparktrain.sweep`. Ctrl-C asks the coordinator for a stop; any other end of this process ends no run.
    """
    display.start()
    try:
        started = start_in_cluster(call, agents, display, why)
        return started if isinstance(started, SweepResult) else follow_run(started, display)
    finally:
        display.close()


def follow_run(started: StartedRun, display: Display) -> SweepResult:
    """Show a run that was started to its end; its result. Blocks, and raises as `launch_in_cluster`."""
    follower = CallFollower(started.place, lambda view: started.folder.look().end, started.agents, display)
    observers = started.run.call.observers
    with _leaving(started), client_services(started.place, observers, display), interruptible():
        try:
            end = follower.follow(started.failure)
            interrupts = False
        except KeyboardInterrupt:
            interrupts = True
            ask_stop(started.place.store, started.place.layout, "interrupted by Ctrl-C")
            end = follower.follow(started.failure, SystemClock().now() + INTERRUPT_TIMEOUT_S)
    if end is None:
        raise KeyboardInterrupt(
            f"run {started.run.definition.spec.name} was asked to stop, and has not within {INTERRUPT_TIMEOUT_S:g} s; "
            f"its coordinator will: sparktrain status {started.place.where}"
        )
    if (error := error_of(end)) is not None:
        raise error
    sweep_result = follower.result()
    if interrupts and sweep_result.status is SweepStatus.STOPPED:
        raise KeyboardInterrupt(interrupted(sweep_result, next_commands(started.run.definition.plan, local=False)))
    return sweep_result


@contextmanager
def _leaving(started: StartedRun) -> Iterator[None]:
    """Have the agents' job end with the context."""
    try:
        yield
    finally:
        started.job.finish(LEAVE_S)


def _ticket(cluster_call: StoredClusterCall) -> AgentTicket:
    run = cluster_call.run
    name = cluster_call.name
    certificates = issue(name, VALID_DAYS)
    call = run.call
    secrets = CoordinatorSecrets(
        server=certificates.server,
        agent=certificates.agent,
        starts=certificates.starts.timestamp(),
        expires=certificates.expires.timestamp(),
        env=call.env,
        callbacks=pickled_callbacks(call.observers.callbacks),
        connect=cluster_call.connect,
    )
    home = CoordinatorHome(
        store=run.definition.store.address,
        run=run.definition.spec.name,
        call=name,
        fingerprint=server_fingerprint(certificates.server.certificate),
        secrets=msgspec.msgpack.encode(secrets),
        tokens=cluster_call.tokens,
    )
    return AgentTicket(name, (), 0, certificates.agent, JOIN_S, 0.0, hold_s=HOLD_S, home=home)


def pickled_callbacks(callbacks: tuple[object, ...]) -> bytes:
    """The callbacks for the coordinator, which calls them. Raises SpecError for one that cannot travel."""
    if not callbacks:
        return b""
    try:
        return pickled(lambda: callbacks)
    except FunctionError as error:
        raise SpecError(
            f"callbacks with coordinator='cluster' travel to the coordinator, and these cannot: {error}; make what "
            "they connect to in run_started"
        ) from error


def send_heartbeats(folder: CoordinatorFolder, over: Callable[[float], bool], pause_s: float) -> None:
    """Send them until `over` returns True, which waits for the end of the agents for so many seconds. Blocks."""
    count = 0
    while True:
        try:
            folder.client_heartbeat(count + 1)
            count += 1
        except OSError as error:  # the next one may come through
            logger.info("no heartbeat of the client could be stored: %s", error)
        if over(pause_s):
            return


@contextmanager
def client_services(place: RunLocation, observers: Observers, display: Display) -> Iterator[None]:
    """Serve what the call asks for, until the context ends, and show the URLs. Raises SpecError, OSError."""
    store = place.store
    layout = place.layout

    def stop(trial: int | None) -> None:
        ask_stop(store, layout, "stopped on its page", trial=trial, grace_s=TIMEOUT_GRACE_S)

    with ExitStack() as stack:
        if observers.tensorboard:
            feed = from_wing("BoardFeed")(place, SystemClock())
            board = stack.enter_context(from_wing("Board").start(store, layout.path, feed=feed.follow))
            display.print_line(f"{layout.path}: TensorBoard: {board.url}")
        if observers.page:
            start = from_wing("LivePage").start
            page = stack.enter_context(start(place.where, bind="127.0.0.1", host="localhost", on_stop=stop))
            display.print_line(f"{layout.path}: page: {page.url}")
        yield
