"""Heartbeats to verdicts: an agent whose lease has run out is lost, for good."""

from sparktrain.ids import AgentId


class Leases:
    """Until when each agent counts as alive."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._until: dict[AgentId, float] = {}

    def renew(self, agent: AgentId, at: float) -> None:
        """A sign of life of `agent` came at `at`."""
        self._until[agent] = at + self._lease_s

    def end(self, agent: AgentId) -> None:
        """`agent` is gone."""
        self._until.pop(agent, None)

    def expired(self, at: float) -> list[AgentId]:
        """Agents whose lease ran out before `at`, in the order in which they joined."""
        return [agent for agent, until in self._until.items() if until < at]
