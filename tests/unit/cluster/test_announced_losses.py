"""What Spark and YARN announce to decommission, by the running tasks of agents."""

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from sparktrain.base.ids import AgentId, SparkTask
from sparktrain.cluster import announced_losses
from sparktrain.cluster.announced_losses import NODES_S, AnnouncedLosses, ClusterNotice
from sparktrain.driver.agent_server import Server
from sparktrain.driver.drain_events import IDLE_S, AnnouncedDepartures
from sparktrain.protocol import messages as m
from sparktrain.protocol.memory_transport import MemoryTransport
from sparktrain.state import events as on
from sparktrain.state.agents import Agents
from tests.unit.driver.drivers import QuickClock
from tests.unit.driver.stored import HandClock

TASKS = [SparkTask(2, 5), SparkTask(2, 6), SparkTask(2, 7)]
PLACES = {5: ("0", "one"), 6: ("1", "two"), 7: ("2", "two")}


class Context:
    """A SparkContext that decommissions some executors."""

    def __init__(self, *executors: str) -> None:
        self.executors = executors
        self._jsc = self

    def __getattr__(self, name: str) -> Any:
        """The objects of the JVM on the way to the executors, by calls without arguments."""
        if name == "mkString":
            return lambda separator: separator.join(self.executors)
        if name not in ("sc", "taskScheduler", "executorsPendingDecommission", "keysIterator"):
            raise AttributeError(name)
        return lambda: self


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """The looks at the running tasks of stages."""
    stages_of: list[set[int]] = []

    def places(context: Any, stages: set[int]) -> dict[int, tuple[str, str]]:
        stages_of.append(stages)
        return PLACES if stages else {}

    monkeypatch.setattr(announced_losses, "running_places", places)
    return stages_of


def test_an_executor_that_spark_decommissions_and_a_node_of_yarn(looks: list[set[int]]) -> None:
    hosts = [frozenset({"two"}), frozenset()]
    clock = HandClock()
    context = Context("0")
    announced = AnnouncedLosses(context, lambda: hosts.pop(0), clock)
    node = "YARN decommissions node two"
    expected = {5: ClusterNotice("Spark decommissions executor 0")}
    expected |= {6: ClusterNotice(node, "1"), 7: ClusterNotice(node, "2")}
    assert announced(TASKS) == expected
    assert announced(TASKS) == expected
    assert looks == [{2}, set()], "each task is looked up once"
    clock.at += NODES_S
    context.executors = ("1", "2")
    assert announced(TASKS) == {
        6: ClusterNotice("Spark decommissions executor 1"),
        7: ClusterNotice("Spark decommissions executor 2"),
    }


def test_without_an_announcement_no_task_is_looked_up(looks: list[set[int]]) -> None:
    assert AnnouncedLosses(Context(), frozenset)(TASKS) == {}
    assert looks == []


def test_what_another_spark_answers_ends_no_run() -> None:
    assert AnnouncedLosses(SimpleNamespace(), frozenset)(TASKS) == {}


class Losses:
    """A cluster that announces the loss of a task at the second look."""

    def __init__(self, notice: ClusterNotice) -> None:
        self.notice = notice
        self.looks = 0
        self.replaced = asyncio.Queue[str]()

    def __call__(self, tasks: Collection[SparkTask]) -> dict[int, ClusterNotice]:
        self.looks += 1
        return {5: self.notice} if self.looks > 1 else {}

    def replace(self, executor: str) -> None:
        self.replaced.put_nowait(executor)


async def refused(*_: Any) -> m.UploadDone:
    raise AssertionError


@pytest.mark.parametrize("executor", ["", "3"], ids=["by Spark", "by YARN"])
async def test_agents_with_an_announced_loss_are_drained_and_leave(executor: str) -> None:
    transport, fed, agents = MemoryTransport(), asyncio.Queue[on.Event](), Agents(15.0)
    server = Server(transport.listener, QuickClock(), {}, ())
    await server.open(fed.put_nowait, lambda *_: None, refused)
    link = await transport.dialer().attend(1.0)
    link.post(m.Join(agent=AgentId("a"), slot=0, host="host", pid=0, versions={}, task=SparkTask(2, 5)))
    assert isinstance(await link.receive(), m.Welcome)
    losses: Any = Losses(ClusterNotice("gone soon", executor))
    departures = AnnouncedDepartures(losses, server, QuickClock(), fed.put_nowait)
    watch = asyncio.create_task(departures.watch(agents))
    if executor:
        assert await asyncio.wait_for(losses.replaced.get(), 10.0) == executor
    else:
        assert await asyncio.wait_for(link.receive(), 10.0) == m.Depart("gone soon")
    ended_at = QuickClock().now()
    watch.cancel()
    assert isinstance(await fed.get(), on.AgentJoined)
    event = await fed.get()
    assert isinstance(event, on.LossAnnounced)
    assert not executor or ended_at >= event.at + IDLE_S, "files of a member may be on their way"
    assert (event.agent, event.notice, fed.empty(), losses.looks) == ("a", "gone soon", True, 2)
    await server.close()
