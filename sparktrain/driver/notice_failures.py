"""What agents could not read at the addresses of `notice`: logged once for each, counted, and ignored."""

import logging
from dataclasses import dataclass, field

from sparktrain.base import formatting
from sparktrain.base.ids import AgentId

logger = logging.getLogger("sparktrain")


@dataclass
class _FailedLooks:
    problem: str
    by_agent: dict[AgentId, int] = field(default_factory=dict)


class NoticeFailures:
    """The failed looks of the agents of a pool, by address. All methods belong to the coordinator's event loop."""

    def __init__(self) -> None:
        self._failed: dict[str, _FailedLooks] = {}

    def clear(self, address: str | None) -> None:
        """A run starts that names this address, and no other one does."""
        if address is not None:
            self._failed.pop(address, None)

    def add(self, agent: AgentId, host: str, address: str, looks: int, problem: str) -> None:
        """An agent has failed to look so often; the first one is logged."""
        failed = self._failed.get(address)
        if failed is None:
            failed = self._failed[address] = _FailedLooks(f"on {host}: {formatting.plain(problem)}")
            logger.warning("notice cannot be read %s; this is ignored, and the run continues", failed.problem)
        failed.by_agent[agent] = max(looks, failed.by_agent.get(agent, 0))

    def report(self, address: str | None) -> None:
        """Log how many looks at the address of a run that ends have failed."""
        if address is not None and (failed := self._failed.get(address)) is not None:
            agents = formatting.count(len(failed.by_agent), "agent")
            looks = formatting.count(sum(failed.by_agent.values()), "look")
            logger.warning(
                "notice %s could not be read by %s, at least %s in all; the first was %s",
                address, agents, looks, failed.problem,
            )  # fmt: skip
