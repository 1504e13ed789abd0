"""What agents could not read at the address of `notice`: logged once, counted, and ignored."""

import logging

from sparktrain import formatting
from sparktrain.ids import AgentId

logger = logging.getLogger("sparktrain")


class NoticeFailures:
    """The failed looks of the agents of one run. All methods belong to the coordinator's event loop."""

    def __init__(self) -> None:
        self._looks: dict[AgentId, int] = {}
        self._problem = ""

    def clear(self) -> None:
        """Another run starts."""
        self._looks.clear()
        self._problem = ""

    def add(self, agent: AgentId, host: str, looks: int, problem: str) -> None:
        """An agent has failed to look so often; the first one of a run is logged."""
        if not self._looks:
            self._problem = f"on {host}: {formatting.plain(problem)}"
            logger.warning("notice cannot be read %s; this is ignored, and the run continues", self._problem)
        self._looks[agent] = max(looks, self._looks.get(agent, 0))

    def report(self, address: str | None) -> None:
        """Log how many looks have failed in the run that ends."""
        if self._looks:
            agents = formatting.count(len(self._looks), "agent")
            looks = formatting.count(sum(self._looks.values()), "look")
            logger.warning(
                "notice %s could not be read by %s, at least %s in all; the first was %s",
                address, agents, looks, self._problem,
            )  # fmt: skip
