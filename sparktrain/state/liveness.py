"""Leases: an agent without a heartbeat for the length of its lease is lost, for good."""

from collections import deque

from sparktrain.base.ids import AgentId

SLEPT_S = 6.0
"""The coordinator looks at leases ten times a second. After so long without a look, it was itself suspended
or held up, and what agents sent meanwhile is still unread."""

ANSWER_S = 1.0
"""How long an agent with a host that others cannot reach has to answer `AskHeartbeat`."""
HELD_UP_S = 0.3
"""So long a gap between two looks counts for no agent that is to answer: its answer may be among what is unread."""


class Leases:
    """When each agent was last heard of, and how long that counts."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._heard_at: dict[AgentId, float] = {}
        self._doubted: dict[AgentId, float] = {}
        """Since when others cannot reach the host of an agent that was not heard of since."""
        self._looked_at: float | None = None

    def renew(self, agent: AgentId, at: float) -> None:
        """A heartbeat of `agent` came at `at`."""
        self._heard_at[agent] = at
        self._doubted.pop(agent, None)

    def doubt(self, agent: AgentId, at: float) -> bool:
        """Members on other hosts cannot reach that of `agent`: its lease ends `ANSWER_S` later, unless it is heard of.

        What they report ends no lease by itself: they may be the ones that are cut off. False where it is doubted
        already.
        """
        if agent not in self._heard_at or agent in self._doubted:
            return False
        self._doubted[agent] = at
        return True

    def is_doubted(self, agent: AgentId) -> bool:
        """Whether the agent was not heard of since `doubt`."""
        return agent in self._doubted

    @property
    def has_doubted(self) -> bool:
        """Whether any agent was not heard of since `doubt`."""
        return bool(self._doubted)

    def end(self, agent: AgentId) -> None:
        """The lease of `agent` ends, for the agent is gone."""
        self._heard_at.pop(agent, None)
        self._doubted.pop(agent, None)

    def woke(self, at: float) -> float:
        """For how long the coordinator was itself suspended or held up before `at`; 0 where it was not.

        Call it before each `expired`, many times in each `SLEPT_S`. After a gap it renews all leases, for the agents
        were not silent.
        """
        gap_s = 0.0 if self._looked_at is None else at - self._looked_at
        self._looked_at = at
        if gap_s > HELD_UP_S:
            self._doubted = {agent: since + gap_s for agent, since in self._doubted.items()}
        if gap_s <= SLEPT_S:
            return 0.0
        for agent in list(self._heard_at):
            self.renew(agent, at)
        return gap_s

    def expired(self, at: float) -> dict[AgentId, str]:
        """Agents with a lease that ran out before `at`, in the order in which they joined, and why."""
        reasons = {}
        for agent, heard_at in self._heard_at.items():
            if self._doubted.get(agent, at) + ANSWER_S < at:
                reasons[agent] = f"no answer for {ANSWER_S:g} s, and no other member reaches its host"
            elif heard_at + self._lease_s < at:
                reasons[agent] = f"no heartbeat for {self._lease_s:g} s"
        return reasons


class Lease:
    """An agent's own view of its lease, which never ends later than the coordinator's, unless that doubts the agent.

    It counts from the *sending* of the answered heartbeat, the coordinator's from the arrival, which is later. The
    ring of a member of a doubted agent is broken, and this member trains on only in a ring that the coordinator has
    announced to it.
    """

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._unanswered = deque[float]()
        self._until = float("inf")

    def sent(self, at: float) -> None:
        """A heartbeat is sent."""
        self._unanswered.append(at)
        if self._until == float("inf"):
            self._until = at + self._lease_s

    def answered(self) -> None:
        """The coordinator has answered the oldest heartbeat that it has not answered; ignored when there is none."""
        if self._unanswered:
            self._until = self._unanswered.popleft() + self._lease_s

    def left_s(self, at: float) -> float:
        """For how long the coordinator has certainly not given this agent's member to another; 0 when it may have."""
        return max(0.0, self._until - at)
