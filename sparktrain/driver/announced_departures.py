"""What a cluster announces to decommission, as events: agents are drained there, and end once they have no member."""

from collections.abc import Callable
from functools import partial

from sparktrain.clock import Clock
from sparktrain.cluster.announced_losses import Announcements
from sparktrain.driver.agent_server import Server
from sparktrain.ids import AgentId
from sparktrain.protocol import messages as m
from sparktrain.state.events import Event, LossAnnounced
from sparktrain.threads import aside

ANNOUNCEMENTS_S = 2.0
"""Interval at which Spark is asked which executors it decommissions."""


async def watch_announcements(
    announcements: Announcements, server: Server, clock: Clock, feed: Callable[[Event], None]
) -> None:
    """Feed what `announcements` reports of the agents of `server`, each once, and have these agents leave.

    Never returns.
    """
    announced: set[AgentId] = set()
    while True:
        await clock.sleep(ANNOUNCEMENTS_S)
        tasks = server.unexplained.tasks
        announced &= tasks.keys()
        quiet = {agent: task for agent, task in tasks.items() if agent not in announced}
        if not quiet:
            continue
        notices = await aside(partial(announcements, frozenset(quiet.values())), "sparktrain-announcements")
        for agent, task in quiet.items():
            if (notice := notices.get(task.id)) is not None:
                announced.add(agent)
                feed(LossAnnounced(clock.now(), agent, notice))
                server.send(agent, m.Depart(notice))
