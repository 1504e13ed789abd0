"""The driver reads what users ask it to drain, also where the store fails for a while, and records its decision."""

import asyncio

import msgspec
import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.driver import coordinator
from sparktrain.driver.agent_server import Server
from sparktrain.driver.coordinator import Coordinator
from sparktrain.protocol.memory_transport import MemoryTransport
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.additions.drain_requests import DrainRequest
from sparktrain.state.records import AnyRecord, DrainDecided
from tests.support.run_stages import in_store, requested
from tests.unit.driver.drivers import NAME, World, play, prepared
from tests.unit.driver.test_closing import attend

REQUESTS = (
    DrainRequest(id="1700000000000000-0123abcd", host="elsewhere"),
    DrainRequest(id="1700000000000001-0123abcd", agent=0, driver_started=5.0),
    DrainRequest(id="1700000000000002-0123abcd", agent=0),
)


class NotingClock(SystemClock):
    """Notes how long it is asked to sleep."""

    def __init__(self) -> None:
        self.sleeps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        await super().sleep(seconds)


async def decided(world: World, clock: SystemClock | None = None) -> list[AnyRecord]:
    """What a run has recorded once it has decided on all requests to drain."""
    transport, training = MemoryTransport(), asyncio.Event()
    made = Coordinator(Server(transport.listener, SystemClock(), {}, ()), clock or SystemClock())
    work = requested(in_store(prepared(2), world.store))
    await made.open()
    agent = asyncio.create_task(attend(transport.dialer("agent"), training))
    running = asyncio.create_task(made.run(work))
    await asyncio.wait_for(training.wait(), 10.0)
    for request in REQUESTS:
        world.store.put_if_absent(RunLayout(NAME).drain(request.id), msgspec.json.encode(request))
    records: list[AnyRecord] = []
    async with asyncio.timeout(10.0):
        while len(records) < len(REQUESTS):
            await asyncio.sleep(0.01)
            records = [record for record in world.records() if isinstance(record, DrainDecided)]
    await made.close("the pool closes")
    await agent
    await asyncio.wait_for(running, 10.0)
    return [record for record in world.records() if isinstance(record, DrainDecided)]


def test_each_request_gets_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "DRAINS_S", 0.021)
    monkeypatch.setattr(coordinator, "REMOTE_DRAINS_S", 0.022)
    failures = [OSError("the store is away"), OSError("and still is")]
    read = coordinator.pending_drains

    def flaky(*where: object) -> list[DrainRequest]:
        if failures:
            raise failures.pop()
        return read(*where)

    monkeypatch.setattr(coordinator, "pending_drains", flaky)
    clock = NotingClock()
    answers = play(decided(World(), clock))
    looks = [seconds for seconds in clock.sleeps if seconds in (0.021, 0.022)]
    assert looks[:3] == [0.022] * 3, "a store that is no folder is asked more rarely"
    assert looks[-1] == 0.021, "until there is a request"
    assert [(answer.request, answer.problem) for answer in answers] == [
        (REQUESTS[0].id, "the run has no agent on elsewhere: its agents are 0 on host; name one of these"),
        (REQUESTS[1].id, "agent 0 was one of an earlier driver, and the driver now has others: name the host"),
        (REQUESTS[2].id, ""),
    ]
