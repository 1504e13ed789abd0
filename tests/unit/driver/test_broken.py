"""Errors in the driver itself: each is logged, the first one is what the caller hears of, and no run waits for ever."""

import asyncio
import logging
from dataclasses import replace

import pytest

from sparktrain.display.progress import NullDisplay, Progress
from sparktrain.driver.active_run import ActiveRun
from sparktrain.driver.agent_server import Server
from sparktrain.driver.coordinator import TICK_S, Coordinator
from sparktrain.driver.run_request import RunOutcome, RunRequest
from sparktrain.errors import PoolError
from sparktrain.protocol.memory_transport import MemoryTransport
from sparktrain.protocol.messages import MemberStarted
from sparktrain.state.commands import PrepareAgent
from sparktrain.state.trial import TrialStatus
from tests.process.harness import eventually
from tests.support.run_stages import in_store, requested, with_spec
from tests.unit.driver.drivers import Agent, Driver, QuickClock, World, prepared, whole

DEADLINE_S = 10.0


class Failing(NullDisplay):
    """A display that breaks its contract: by that the driver's clock stops."""

    def update(self, progress: Progress) -> None:
        raise RuntimeError("the clock has stopped")


def coordinator() -> tuple[Coordinator, MemoryTransport]:
    transport = MemoryTransport()
    return Coordinator(Server(transport.listener, QuickClock(), {}, ()), QuickClock()), transport


def work(watcher: NullDisplay | None = None, world: World | None = None, name: str = "") -> RunRequest:
    request = requested(in_store(prepared(2), (world or World()).store), display=watcher)
    return with_spec(request, replace(request.spec, name=name)) if name else request


async def test_a_display_that_fails_ends_its_run_alone(caplog: pytest.LogCaptureFixture) -> None:
    made, transport = coordinator()
    await made.open()
    world = World()
    failing = asyncio.create_task(made.run(work(Failing(), name="failing")))
    running = await begun(made, work(world=world))
    with pytest.raises(RuntimeError, match="the clock has stopped"):
        await asyncio.wait_for(failing, DEADLINE_S)
    assert not made.broken
    dialer = transport.dialer("agent")
    attending = asyncio.create_task(Agent(Driver(world, prepared(2), whole), dialer).attend())
    ran = await asyncio.wait_for(running, DEADLINE_S)
    assert [trial.status for trial in ran.trials] == [TrialStatus.SUCCEEDED] * 2
    dialer.vanish()
    await made.close("the test ends")
    await attending


async def test_a_clock_that_stops_ends_the_run_at_once_and_each_after_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def sleep(self: QuickClock, seconds: float) -> None:
        await asyncio.sleep(0.01)
        if seconds == TICK_S:
            raise RuntimeError("the clock has stopped")

    made, _ = coordinator()
    await made.open()
    running = await begun(made, work())
    monkeypatch.setattr(QuickClock, "sleep", sleep)
    for attempt in (running, made.run(work())):
        with pytest.raises(PoolError, match=r"broken .*RuntimeError: the clock has stopped.*resume") as caught:
            await asyncio.wait_for(attempt, DEADLINE_S)
        assert isinstance(caught.value.__cause__, RuntimeError)
    monkeypatch.undo()
    assert made.broken
    assert caplog.text.count("RuntimeError: the clock has stopped\n") >= 1
    await made.close("the test ends")


async def test_a_clock_that_stops_between_runs_is_told_and_fails_the_next(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def sleep(self: QuickClock, seconds: float) -> None:
        raise OSError("no more time")

    made, _ = coordinator()
    monkeypatch.setattr(QuickClock, "sleep", sleep)
    with caplog.at_level(logging.ERROR, "sparktrain"):
        await made.open()
        await eventually(lambda: "OSError: no more time" in caplog.text, DEADLINE_S)
    with pytest.raises(PoolError, match="no more time"):
        await asyncio.wait_for(made.run(work()), DEADLINE_S)
    monkeypatch.undo()
    await made.close("the test ends")


async def fails(message: str, when: asyncio.Event) -> None:
    """What a coordinator has done beside its loop."""
    await when.wait()
    raise ValueError(message)


def active(made: Coordinator) -> ActiveRun:
    """The only run of the coordinator."""
    [run] = made._runs.values()
    return run


async def begun(made: Coordinator, asked: RunRequest) -> "asyncio.Task[RunOutcome]":
    """A run that the coordinator is on."""
    running = asyncio.create_task(made.run(asked))
    await asyncio.sleep(0)
    return running


async def test_what_went_wrong_first_is_what_the_caller_hears_of(caplog: pytest.LogCaptureFixture) -> None:
    made, _ = coordinator()
    await made.open()
    running, now = await begun(made, work()), asyncio.Event()
    for message in ("first", "second"):
        made._background(fails(message, now), run=active(made))
    now.set()
    with pytest.raises(ValueError, match="first"):
        await asyncio.wait_for(running, DEADLINE_S)
    assert "ValueError: first" in caplog.text
    assert "ValueError: second" in caplog.text
    assert not made.broken
    await made.close("the test ends")


async def test_an_error_that_a_run_has_left_behind_does_not_end_the_next(caplog: pytest.LogCaptureFixture) -> None:
    made, transport = coordinator()
    await made.open()
    late, running = asyncio.Event(), await begun(made, work())
    made._background(fails("of the run before", late), run=active(made))
    made.stop("the first is enough", 0.0)
    await asyncio.wait_for(running, DEADLINE_S)

    world = World()
    driver = Driver(world, prepared(2), whole)
    running = await begun(made, work(world=world))
    late.set()
    await asyncio.sleep(0)
    dialer = transport.dialer("agent")
    attending = asyncio.create_task(Agent(driver, dialer).attend())
    ran = await asyncio.wait_for(running, DEADLINE_S)
    assert [trial.status for trial in ran.trials] == [TrialStatus.SUCCEEDED] * 2
    assert "of the run before" in caplog.text
    dialer.vanish()
    await made.close("the test ends")
    await attending


@pytest.mark.parametrize(("broken", "error"), [("fold", PoolError), ("_perform", KeyError)])
async def test_an_error_in_a_decision_ends_the_run_and_no_link(
    broken: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made, transport = coordinator()
    await made.open()
    world = World()
    owner, name = (made._machine, "fold") if broken == "fold" else (made, "_perform")
    intact, failed = getattr(owner, name), list[object]()

    def breaks(*what: object) -> object:
        if isinstance(getattr(what[-1], "message", what[-1]), MemberStarted | PrepareAgent):
            failed.append(what)
            raise KeyError("a trial that is over")
        return intact(*what)

    monkeypatch.setattr(owner, name, breaks)
    running = await begun(made, work(world=world))
    dialer = transport.dialer("agent")
    attending = asyncio.create_task(Agent(Driver(world, prepared(2), whole), dialer).attend())
    with pytest.raises(error, match="a trial that is over"):
        await asyncio.wait_for(running, DEADLINE_S)
    assert failed
    assert "an error in the driver: KeyError" in caplog.text
    assert "was closed by an error" not in caplog.text
    assert made.agents_alive == 1, "the agent keeps its link"
    dialer.vanish()
    await made.close("the test ends")
    await attending
