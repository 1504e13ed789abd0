"""The one door of a run: the way from a checked call to its result, on agents of its own or on those of a pool."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from signal import SIGTERM

from sparktrain.base.boundary import DriverTerminated
from sparktrain.base.formatting import first_line
from sparktrain.cluster import preflight
from sparktrain.datasets.manifest import MemberData
from sparktrain.display.live import choose_display
from sparktrain.display.progress import Display
from sparktrain.driver.agent_sources import AgentSource, LateAgents, OwnAgents
from sparktrain.driver.clustered.cluster_launch import launch_in_cluster
from sparktrain.driver.clustered.coordinator_place import runs_in_cluster
from sparktrain.driver.finish import finished, interrupted, result, unloadable
from sparktrain.driver.first_lines import nothing_run, opening
from sparktrain.driver.pool import AgentPool
from sparktrain.driver.prepare.attached_run import AttachedRun, attach, with_known_backend
from sparktrain.driver.prepare.checked_call import CheckedCall
from sparktrain.driver.prepare.naming import NamedRun, take_name
from sparktrain.driver.prepare.owned_run import OwnedRun, claim
from sparktrain.driver.prepare.ready_run import request_of
from sparktrain.driver.run_services import fed_streams, performed_stops, served_board, served_page
from sparktrain.driver.tracking.callback_feed import listening
from sparktrain.errors import PoolError
from sparktrain.protocol.server_keys import server_keys
from sparktrain.results.sweep_result import SweepResult
from sparktrain.rundir.journal.run_claim import tracked_id
from sparktrain.runs.next_commands import next_commands
from sparktrain.state.ending import Ending


def launch(call: CheckedCall, agents: AgentSource, display: Display | None = None) -> SweepResult:
    """Perform a checked call on `agents`, write its result, and return it. Blocks. Raises as `sparktrain.sweep`.

    Every public call and every command that trains passes here. Without a `display`, the call decides on one.
    """
    if display is None:
        display = choose_display(quiet=not call.observers.progress)
    with ExitStack() as stack:
        if isinstance(agents, LateAgents):
            preflight.check_agents(call.slots.agents)
            # Java and Spark take 13 to 25 s to start: a run in which nothing is left to do is shown without them.
            if not call.needs_session and (sweep_result := _finished(attach(call), display)) is not None:
                return sweep_result
            agents = OwnAgents(stack.enter_context(agents.engine()))
        # A pool, and agents that several calls share, stay with this process.
        if type(agents) is OwnAgents and (why := runs_in_cluster(call, agents.engine)) is not None:
            return launch_in_cluster(call, agents, display, why)
        admitted = agents.admit(call)
        if (sweep_result := _finished(admitted.run, display)) is not None:
            return sweep_result
        pool = stack.enter_context(agents.pool(admitted))
        # `run.json` takes the name before anything starts: of two drivers that pass here at once, one gets it.
        start_s = call.definition.spec.start_timeout_s
        known_run = with_known_backend(admitted.run, lambda: pool.reported(start_s), inherits=pool.engine.inherits)
        named = take_name(known_run)
        stack.enter_context(pool.entered(named.definition.spec.name))
        return _train(pool, named, display, stack, min(admitted.agents, pool.agents))


def _finished(run: AttachedRun, display: Display) -> SweepResult | None:
    """The result of a run in which nothing is left to do, which is shown; None for any other."""
    if (finished_result := finished(run)) is not None:
        with listening(run, tracked_id(run.definition.store, run.definition.layout.journal)) as feed:
            if feed is not None:
                feed.ended(finished_result)
        display.start()
        display.print_line(nothing_run(finished_result))
        display.close()
    return finished_result


def _train(
    agents: AgentPool, run: NamedRun, display: Display, callbacks_stack: ExitStack, most_agents: int
) -> SweepResult:
    """Run on up to `most_agents` agents, write the result, and raise the error that ended the run early.

    Its callbacks are served until `callbacks_stack` ends.
    """
    definition = run.definition
    spec = definition.spec
    display.start()
    try:
        for line in (*opening(run), *(f"{spec.name}: {note}" for note in agents.engine.notes)):
            display.print_line(line)
        owned = claim(run, agents.driver_identity())
        with ExitStack() as stack:
            with _given_back(owned):
                feed = callbacks_stack.enter_context(listening(run, owned.id))
                stack.enter_context(served_board(run, agents.engine, display))
                stack.enter_context(served_page(run, agents, display))
                stack.enter_context(performed_stops(run, agents))
                data = _written_data(owned, agents, display)
                streams = stack.enter_context(fed_streams(run.call, agents))
                work = request_of(owned, most_agents, display, data)
                keys = server_keys(spec.gang, spec.name)
                work = replace(work, streams=streams, servers=keys, listener=feed)
            with _given_back(owned, PoolError):  # its slots were taken while data was written
                ran, interruption = agents.run(work)
    finally:
        display.close()
    sweep_result = result(definition, ran, owned.journal)
    if feed is not None:
        feed.ended(sweep_result)
    if interruption is not None:
        message = interrupted(sweep_result, next_commands(definition.plan, run.local))
        raise DriverTerminated(message) if interruption is SIGTERM else KeyboardInterrupt(message)
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
        owned.give_back(first_line(error))
        raise


def _written_data(owned: OwnedRun, agents: AgentPool, display: Display) -> MemberData | None:
    """Where the datasets are, once they are written: by Spark's jobs, which need the slots that agents would hold."""
    definition = owned.definition
    if not definition.documents:
        return None
    spec = definition.spec

    def show(line: str) -> None:
        display.print_line(f"{spec.name}: {line}")

    if not (agents.engine.runs_jobs and owned.run.waits_for_spark()):
        return owned.write_data(show)
    with agents.writing(spec.name, spec.start_timeout_s, show):
        return owned.write_data(show)
