"""The life of a pool, with Spark's jobs and the coordinator replaced: what it takes it gives back, however it ends."""

import logging
import os
import signal
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from sparktrain.base.boundary import DriverTerminated
from sparktrain.base.ids import RunId
from sparktrain.driver import pool as pools
from sparktrain.driver.engines.engine import Address, JobEnd
from sparktrain.driver.engines.job_failures import RELAUNCHES
from sparktrain.driver.pool import AgentPool, PoolTimes
from sparktrain.driver.run_request import RunOutcome
from sparktrain.driver.slots.slot_holders import HOLDERS
from sparktrain.errors import (
    AgentsLostError,
    EnvironmentMismatchError,
    JoinTimeoutError,
    PoolError,
    ResourceError,
    SparktrainError,
)
from sparktrain.state.commands import EndRun
from sparktrain.state.ending import Ending
from tests.unit.driver.drivers import prepared

ENDED = JobEnd(((0, "gone", True),))
UNAVAILABLE = RunOutcome((), EndRun(RunId("r"), Ending.UNAVAILABLE, "gone"), 1.0)


class Job:
    """In place of an engine's batch: it is there from its start to its end."""

    started: ClassVar[list["Job"]] = []

    def __init__(
        self, number: int, held: Any, slots: range, on_end: Callable[[JobEnd], None], without_gpus: bool
    ) -> None:
        self.number = number
        self.held = held
        self.slots = slots
        self.without_gpus = without_gpus
        self.cancelled = False
        self._on_end = on_end

    def start(self) -> None:
        self.started.append(self)

    def end(self) -> None:
        """As an engine does: in a thread of its own."""
        self._on_end(ENDED)

    def join(self, timeout_s: float) -> bool:
        return self.cancelled

    def cancel(self) -> None:
        self.cancelled = True

    def vacant(self) -> set[int]:
        return set()

    def lacking(self) -> None:
        return None


class Slots:
    """An engine of two slots."""

    name = "local[2]"
    batch_name = "the Spark job of the agents"
    slots = 2
    gpu_mib = 0
    notice = None
    ended = False

    @property
    def holder(self) -> object:
        return self

    def address(self) -> Address:
        return Address("127.0.0.1", ("127.0.0.1",), 0)

    def certificates(self, pool: str) -> Any:
        return type("Issued", (), {"server": None, "agent": None})

    def loss_reasons(self) -> None:
        return None

    def pod_nodes(self) -> None:
        return None

    def announcements(self) -> None:
        return None

    def outlook(self, agents: int) -> Callable[[], str]:
        return str

    def refused_s(self) -> None:
        return None

    def batch(self, ticket: Any, slots: range, held: Any, on_end: Any, *, without_gpus: bool) -> Job:
        return Job(ticket.batch, held, slots, on_end, without_gpus)


class FakeCoordinator:
    """Opens and closes, and counts."""

    broken = False
    agents_alive = 1
    joined: dict[str, str] | None = None
    refused: str | None = None
    trained = 0
    opened: ClassVar[list["FakeCoordinator"]] = []

    def __init__(self, *parts: Any) -> None:
        self.closed = 0
        self.dismissed = 0
        self.over: list[tuple[int, str, int]] = []
        """The batches that have ended, why, and how many jobs had been started until then."""
        self.ends: Callable[[], Any] = lambda: None

    async def open(self) -> tuple[str, int]:
        self.opened.append(self)
        return "127.0.0.1", 1

    async def run(self, work: Any) -> Any:
        return self.ends()

    def entered(self, slots: range) -> int:
        return self.trained

    def agents_unavailable(self, reason: str) -> None:
        """The run ends."""

    async def dismiss(self, reason: str) -> None:
        self.dismissed += 1

    async def end_batch(self, batch: int, reason: str) -> None:
        self.over.append((batch, reason, len(Job.started)))

    async def close(self, reason: str) -> None:
        self.closed += 1


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(Job, "started", [])
    monkeypatch.setattr(FakeCoordinator, "opened", [])
    monkeypatch.setattr(pools, "Coordinator", FakeCoordinator)
    yield
    for pool in list(pools._OPEN):
        pool.close()


def a_pool(engine: Any = None, idle_timeout_s: float | None = None, without_gpus: int = 0) -> AgentPool:
    made = AgentPool(engine or Slots(), 2, (), idle_timeout_s, without_gpus)
    made.open()
    return made


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Has something happen in the pause between the end of a job and the next one."""

    def happens(what: Callable[[], None]) -> None:
        monkeypatch.setattr(pools, "pause", lambda seconds: what())

    happens(lambda: None)
    return happens


Between = Callable[[Callable[[], None]], None]


@pytest.mark.usefixtures("fakes", "between")
def test_a_job_that_ends_is_followed_by_another() -> None:
    a_pool()
    Job.started[0].end()
    assert len(Job.started) == 2


@pytest.mark.usefixtures("fakes", "between")
def test_agents_that_outlive_their_job_leave_before_the_next_one_starts() -> None:
    a_pool(without_gpus=1)
    first, apart = Job.started
    apart.end()
    [coordinator] = FakeCoordinator.opened
    assert coordinator.over == [(apart.number, "the Spark job of the agents ended: gone", 2)]
    assert [each.slots for each in Job.started] == [first.slots, apart.slots, apart.slots]
    assert len({each.number for each in Job.started}) == 3


@pytest.mark.usefixtures("fakes", "between")
def test_a_job_has_a_successor_also_where_its_agents_do_not_leave(caplog: pytest.LogCaptureFixture) -> None:
    a_pool()
    [coordinator] = FakeCoordinator.opened

    async def end_batch(batch: int, reason: str) -> None:
        raise TimeoutError("too slow")

    coordinator.end_batch = end_batch  # type: ignore[method-assign]
    Job.started[0].end()
    assert len(Job.started) == 2
    assert "agents of the last job may still be there: TimeoutError: too slow" in caplog.text


@pytest.mark.usefixtures("fakes")
def test_a_job_that_ends_just_before_the_pool_closes_is_the_last(between: Between) -> None:
    engine = Slots()
    pool = a_pool(engine)
    between(pool.close)
    Job.started[0].end()
    assert len(Job.started) == 1
    HOLDERS.take("another", engine, 2, 2)  # its slots are free
    HOLDERS.free("another")


@pytest.mark.usefixtures("fakes")
def test_a_job_that_ends_just_before_the_idle_end_is_the_last_until_the_next_call(between: Between) -> None:
    pool = a_pool()
    between(lambda: pool._retire_jobs(idle=True) and None)
    Job.started[0].end()
    assert len(Job.started) == 1
    pool.run(a_run())  # type: ignore[arg-type] # as far as it is looked at
    assert len(Job.started) == 2


@pytest.mark.usefixtures("fakes")
def test_an_idle_end_lets_a_call_be_that_has_just_come() -> None:
    pool = a_pool()
    FakeCoordinator.opened[0].ends = lambda: pool._retire_jobs(idle=True)
    work = a_run()
    with pool.entered(work.spec.name):
        assert pool.run(work)[0] == []  # type: ignore[arg-type, comparison-overlap] # as far as it is looked at
    assert pool._retire_jobs(idle=True) == Job.started  # type: ignore[comparison-overlap] # a job of this test


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize("step", ["_batch", "_launch"])
def test_a_pool_that_cannot_be_opened_leaves_nothing_behind(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: AgentPool, *arguments: Any) -> None:
        raise RuntimeError("no profile")

    engine = Slots()
    monkeypatch.setattr(AgentPool, step, fails)
    with pytest.raises(RuntimeError, match="no profile"):
        a_pool(engine)
    assert [each.closed for each in FakeCoordinator.opened] == [1]
    HOLDERS.take("another", engine, 2, 2)
    HOLDERS.free("another")


@pytest.mark.usefixtures("fakes")
def test_slots_are_given_back_where_the_coordinator_does_not_close(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(self: FakeCoordinator, reason: str) -> None:
        raise OSError("stuck")

    pool = a_pool()
    monkeypatch.setattr(FakeCoordinator, "close", fails)
    with caplog.at_level(logging.WARNING, "sparktrain"):
        pool.close()
    assert Job.started[0].cancelled
    assert "stuck" in caplog.text


@pytest.mark.usefixtures("fakes")
def test_at_exit_each_pool_is_closed_whatever_becomes_of_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = []

    def fails(self: AgentPool) -> None:
        tried.append(self)
        raise ConnectionError("the JVM is gone")

    open_pools = {a_pool(), a_pool()}
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "sparktrain"):
        patched.setattr(AgentPool, "close", fails)
        pools._close_all()
    assert open_pools <= set(tried)
    assert "the JVM is gone" in caplog.text


@pytest.mark.usefixtures("fakes", "between")
def test_agents_without_gpus_are_a_batch_of_their_own_each_time() -> None:
    pool = a_pool(without_gpus=1)
    Job.started[1].end()
    assert [(each.slots, each.without_gpus) for each in Job.started] == [
        (range(1), False), (range(1, 2), True), (range(1, 2), True),
    ]  # fmt: skip
    assert pool._resubmit(1) is Job.started[-1]
    assert Job.started[-1].without_gpus


@pytest.mark.usefixtures("fakes")
def test_a_second_call_on_a_session_whose_slots_are_held_is_refused_at_once() -> None:
    engine = Slots()
    first = a_pool(engine)
    with pytest.raises(PoolError, match="hold 2 of the 2 slots of the session"):
        a_pool(engine)
    assert [each.closed for each in FakeCoordinator.opened] == [0, 1]
    first.close()
    a_pool(engine)


@pytest.mark.usefixtures("fakes", "between")
def test_pools_of_one_engine_have_slots_of_their_own() -> None:
    engine = Slots()
    for _ in range(2):
        pool = AgentPool(engine, 1, (), None)
        pool.open()
    assert [each.held for each in Job.started] == [(0,), (1,)]
    Job.started[1].end()
    assert Job.started[2].held == (1,), "its next job has the same"


@pytest.mark.usefixtures("fakes")
def test_of_two_threads_that_open_at_the_same_time_one_gets_the_slots() -> None:
    engine, both, ends = Slots(), threading.Barrier(2), list[str]()

    def opens() -> None:
        both.wait(10)
        try:
            a_pool(engine)
            ends.append("open")
        except PoolError:
            ends.append("refused")

    threads = [threading.Thread(target=opens) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(20)
    assert sorted(ends) == ["open", "refused"]


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize(("joined", "there"), [({"horovod": "0.28.1"}, True), ({}, False)])
def test_the_first_executor_tells_what_executors_have(
    joined: dict[str, str], there: bool, between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = a_pool()
    between(lambda: setattr(FakeCoordinator.opened[0], "joined", joined))
    assert pool.have("horovod", 5.0) is there


@pytest.mark.usefixtures("fakes", "between")
@pytest.mark.parametrize(
    ("refused", "error"), [("keras is 3.15 there", EnvironmentMismatchError), (None, AgentsLostError)]
)
def test_jobs_whose_agents_are_all_refused_end_as_a_mismatch_also_when_they_end_fast(
    refused: str | None, error: type[SparktrainError], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = a_pool()
    monkeypatch.setattr(FakeCoordinator, "refused", refused)
    for _ in range(RELAUNCHES + 1):
        Job.started[-1].end()
    with pytest.raises(error, match=refused or "ended 6 times in a row, and nothing trained in between: gone"):
        raise pool.failure(UNAVAILABLE, 60.0) or AssertionError("no failure")


@pytest.mark.usefixtures("fakes", "between")
def test_only_ends_without_training_in_between_end_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = a_pool()
    for number in range(4 * RELAUNCHES):
        monkeypatch.setattr(FakeCoordinator, "trained", number // RELAUNCHES)
        Job.started[-1].end()
    assert len(Job.started) == 4 * RELAUNCHES + 1
    assert pool._unavailable is None
    for _ in range(2):
        Job.started[-1].end()
    with pytest.raises(AgentsLostError, match="ended 6 times"):
        raise pool.failure(UNAVAILABLE, 60.0) or AssertionError("no failure")


@pytest.mark.usefixtures("fakes", "between")
def test_nobody_waits_for_ever_for_the_first_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = a_pool()
    with pytest.raises(JoinTimeoutError, match=r"no agent joined within 0.01 s, on local\[2\]: .* start_timeout"):
        pool.have("horovod", 0.01)
    monkeypatch.setattr(pools, "pause", lambda seconds: setattr(pool, "_unavailable", AgentsLostError("gone")))
    with pytest.raises(AgentsLostError, match="gone"):
        pool.have("horovod", 5.0)


@pytest.mark.usefixtures("fakes")
def test_a_call_that_waits_for_the_first_executor_logs_each_reason_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reasons = iter(["no node fits", "no node fits", "the quota is used up", "the quota is used up"])

    def outlook() -> str:
        if reason := next(reasons, None):
            return reason
        monkeypatch.setattr(FakeCoordinator, "joined", {"horovod": "0.28"})
        return ""

    monkeypatch.setattr(Slots, "outlook", lambda self, agents: outlook)
    engine: Any = Slots()
    pool = AgentPool(engine, 2, (), None, times=PoolTimes(outlook_s=0.001))
    pool.open()
    with caplog.at_level(logging.WARNING, "sparktrain"):
        assert pool.have("horovod", 60.0)
    first = "no agent has joined yet, on local[2]: "
    assert caplog.messages == [f"{first}no node fits", f"{first}the quota is used up"]


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize("alive", [0, 1])
def test_a_cluster_that_refuses_all_agents_ends_a_call_that_has_none(
    alive: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outlook() -> str:
        raise ResourceError("the account may not create pods")

    monkeypatch.setattr(Slots, "outlook", lambda self, agents: outlook)
    monkeypatch.setattr(FakeCoordinator, "agents_alive", alive)
    pool = a_pool()
    assert pool._why_none() == "the account may not create pods"
    assert (str(pool._unavailable), alive) in [("the account may not create pods", 0), ("None", 1)]
    if not alive:
        with pytest.raises(ResourceError, match="may not create pods"):
            raise pool.failure(UNAVAILABLE, 60.0) or AssertionError("no failure")


@pytest.mark.usefixtures("fakes")
def test_a_pool_whose_coordinator_broke_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks() -> None:
        monkeypatch.setattr(FakeCoordinator, "broken", True)
        raise PoolError("the pool is broken")

    pool = a_pool()
    FakeCoordinator.opened[0].ends = breaks
    with pytest.raises(PoolError, match="broken"):
        pool.run(a_run())  # type: ignore[arg-type] # as far as it is looked at
    assert FakeCoordinator.opened[0].closed == 1
    with pytest.raises(PoolError, match="closed"):
        pool.check_open()


def a_run() -> types.SimpleNamespace:
    """A run, as far as a pool looks at it."""
    return types.SimpleNamespace(spec=prepared(1).definition.spec)


def test_sigterm_ends_a_call_once_and_a_handler_of_the_program_stays() -> None:
    with pytest.raises(DriverTerminated), pools._interrupts():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda signum, frame: received.append(signum))
    try:
        with pools._interrupts():
            os.kill(os.getpid(), signal.SIGTERM)
        assert received == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert DriverTerminated("stored").code == 143
