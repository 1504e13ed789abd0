"""What drains agents, as events: requests of users, and what the cluster announces to decommission."""

from collections.abc import Callable
from functools import partial

from sparktrain.base.clock import Clock
from sparktrain.base.ids import AgentId, RunId
from sparktrain.base.threads import aside
from sparktrain.cluster.announced_losses import AnnouncedLosses
from sparktrain.driver.agent_server import Server
from sparktrain.driver.run_request import RunRequest
from sparktrain.protocol import messages as m
from sparktrain.runs.additions.drain_requests import DrainRequest
from sparktrain.state.agents import Agents
from sparktrain.state.events import DrainAsked, Event, LossAnnounced

ANNOUNCEMENTS_S = 0.5
"""Interval at which Spark is asked which executors it decommissions, which takes two calls of the JVM."""
IDLE_S = 2.0
"""An executor is replaced once no agent there has had a member for so long: its files may be on their way."""


def drain_event(request: DrainRequest, work: RunRequest, at: float) -> DrainAsked:
    """The event for a request that was read at `at`."""
    stale = request.agent is not None and request.driver_started not in (None, work.driver_started.at)
    problem = (
        f"agent {request.agent} was one of an earlier driver, and the driver now has others: name the host"
        if stale
        else ""
    )
    return DrainAsked(
        at=at,
        run=RunId(work.spec.name),
        request=request.id,
        host=request.host,
        agent=request.agent,
        problem=problem,
        cancels=request.cancels,
    )


class AnnouncedDepartures:
    """The agents of one server with an announced loss. All methods belong to its event loop."""

    def __init__(self, losses: AnnouncedLosses, server: Server, clock: Clock, feed: Callable[[Event], None]) -> None:
        self._losses = losses
        self._server = server
        self._clock = clock
        self._feed = feed
        self._announced: dict[AgentId, str] = {}
        """The executor to replace, or an empty text, by each agent with notice."""
        self._idle_since: dict[str, float] = {}
        """Since when the executors to replace have had nothing to do."""

    async def watch(self, agents: Agents) -> None:
        """Look at what the cluster announces, and feed it once for each agent. Never returns."""
        while True:
            await self._clock.sleep(ANNOUNCEMENTS_S)
            await self._look()
            await self._replace(agents)

    async def _look(self) -> None:
        tasks = self._server.unexplained.tasks
        self._announced = {agent: executor for agent, executor in self._announced.items() if agent in tasks}
        quiet = {agent: task for agent, task in tasks.items() if agent not in self._announced}
        if not quiet:
            return
        notices = await aside(partial(self._losses, frozenset(quiet.values())), "sparktrain-announcements")
        for agent, task in quiet.items():
            if (notice := notices.get(task.id)) is not None:
                self._announced[agent] = notice.executor
                self._feed(LossAnnounced(self._clock.now(), agent, notice.text))
                if not notice.executor:
                    self._server.send(agent, m.Depart(notice.text))

    async def _replace(self, agents: Agents) -> None:
        """Replace executors on which no agent has had a member for `IDLE_S`; ask again after the same time."""
        busy: set[str] = set()
        for agent, executor in self._announced.items():
            state = agents.get(agent)
            if state is not None and state.member is not None:
                busy.add(executor)
        now = self._clock.now()
        idle = set(self._announced.values()) - busy - {""}
        self._idle_since = {executor: self._idle_since.get(executor, now) for executor in idle}
        for executor, since in self._idle_since.items():
            if now >= since + IDLE_S:
                self._idle_since[executor] = now
                await aside(partial(self._losses.replace, executor), "sparktrain-announcements")
