"""A pool that is closed while it is on a run stops the run: its trials have no result, and no failure."""

import asyncio
from contextlib import suppress

from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import AgentId
from sparktrain.driver.agent_server import Server
from sparktrain.driver.coordinator import Coordinator
from sparktrain.driver.run_request import RunOutcome
from sparktrain.protocol import messages as m
from sparktrain.protocol.memory_transport import MemoryTransport
from sparktrain.protocol.transport import Dialer, LinkClosedError
from sparktrain.state.ending import Ending
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.state.trial import TrialStatus
from tests.support.run_stages import in_store, requested
from tests.unit.driver.drivers import World, play, prepared

STOPPED = Outcome(1.0, failure=Failure(FailureKind.STOPPED, "stopped on request"))


async def attend(dialer: Dialer, training: asyncio.Event) -> None:
    """An agent with a member that trains until it is stopped, or the agent dismissed."""
    member = None
    with suppress(LinkClosedError):
        link = await dialer.attend(1.0)
        link.post(m.Join(agent=AgentId("agent"), slot=0, host="host", pid=0, versions={}))
        while True:
            match await link.receive():
                case m.Welcome():
                    link.post(m.Ready())
                case m.Prepare(run=run):
                    link.post(m.Ready(run))
                case m.StartMember(member=member):
                    link.post(m.MemberStarted(member, 0))
                    training.set()
                case m.StopMember() | m.Dismiss() as message:
                    if member is not None:
                        link.post(m.MemberEnded(member, STOPPED))
                        link.post(m.MemberStored(member))
                        member = None
                    if isinstance(message, m.Dismiss):
                        link.post(m.Leave("dismissed"))
                        return


async def closed_in_the_middle() -> RunOutcome:
    transport, world, training = MemoryTransport(), World(), asyncio.Event()
    made = Coordinator(Server(transport.listener, SystemClock(), {}, ()), SystemClock())
    work = requested(in_store(prepared(2), world.store))
    await made.open()
    agent = asyncio.create_task(attend(transport.dialer("agent"), training))
    running = asyncio.create_task(made.run(work))
    await asyncio.wait_for(training.wait(), 10.0)
    await made.close("the pool closes")
    await agent
    assert [made.entered(range(first, 2)) for first in (0, 1)] == [1, 0], "also of an agent that is gone"
    return await asyncio.wait_for(running, 10.0)


def test_trials_that_run_and_those_that_wait_are_stopped() -> None:
    ran = play(closed_in_the_middle())
    assert (ran.end.ending, ran.end.reason) == (Ending.STOPPED, "the pool closes")
    assert {trial.status for trial in ran.trials} == {TrialStatus.STOPPED}
    assert not any(trial.restarts for trial in ran.trials)
