"""An agent as the coordinator knows it, and all agents that are alive."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import chain, islice

from sparktrain.ids import AgentId, Member, RunId
from sparktrain.state import agent_messages as m
from sparktrain.state.liveness import Leases
from sparktrain.state.transitions import check_move


class AgentStatus(Enum):
    """The status of an agent, as the coordinator sees it."""

    PREPARING = "starting its zygote, or loading a run's code"
    IDLE = "can start a member at once"
    BUSY = "has a member"


_LEGAL = {
    AgentStatus.PREPARING: (AgentStatus.PREPARING, AgentStatus.IDLE),
    AgentStatus.IDLE: (AgentStatus.PREPARING, AgentStatus.BUSY),
    AgentStatus.BUSY: (AgentStatus.IDLE,),
}


@dataclass(slots=True)
class AgentState:
    """One life of one agent."""

    id: AgentId
    slot: int
    host: str
    address: str = "127.0.0.1"
    """IP address of its host, which other agents reach."""
    gpus: int = 0
    """GPUs that Spark gives its members."""
    status: AgentStatus = AgentStatus.PREPARING
    prepared: RunId | None = None
    """The run that it has the code of."""
    member: Member | None = None
    former: Member | None = None
    """The name under which the process of its member has started, where that has another one since."""
    notice: str = ""
    """What announced that the agent leaves, in a few words; empty while nothing has."""
    leaves_within_s: float | None = None
    """For how long it stays then at most; None where that is not known."""

    def move(self, status: AgentStatus) -> None:
        """Change to `status`. Raises IllegalMoveError for a move that is not legal."""
        self.status = check_move(f"agent {self.id}", self.status, status, _LEGAL)

    def rename(self, member: Member) -> None:
        """Its process is `member` from now on."""
        self.former = self.member
        self.member = member


class Agents:
    """The agents that are alive, their leases, and the idle ones, longest idle first."""

    def __init__(self, lease_s: float) -> None:
        self._leases = Leases(lease_s)
        self._all: dict[AgentId, AgentState] = {}
        self._idle: dict[AgentId, None] = {}
        self._idle_with_gpus: dict[AgentId, None] = {}
        """Those of `_idle` that have GPUs, in the same order."""

    def __len__(self) -> int:
        return len(self._all)

    def get(self, agent: AgentId) -> AgentState | None:
        """The agent, or None when it is lost or was never there."""
        return self._all.get(agent)

    def all(self) -> list[AgentState]:
        """All agents that are alive, in the order in which they joined."""
        return list(self._all.values())

    def join(self, agent: AgentState, at: float) -> None:
        """Add an agent that is not idle yet; its lease starts."""
        self._all[agent.id] = agent
        self._leases.renew(agent.id, at)

    def renew_lease(self, agent: AgentId, at: float) -> None:
        """A message of the agent shows that it is alive."""
        self._leases.renew(agent, at)

    def doubt(self, agent: AgentId) -> None:
        """Others cannot reach the host of the agent: it is soon lost unless it is heard of."""
        self._leases.doubt(agent)

    def woke(self, at: float) -> float:
        """For how long the coordinator was suspended before `at`, see `Leases.woke`."""
        return self._leases.woke(at)

    def expired(self, at: float) -> dict[AgentId, float]:
        """Agents with a lease that ran out before `at`, in the order in which they joined, and its length."""
        return self._leases.expired(at)

    def remove(self, agent: AgentId) -> AgentState | None:
        """Remove a lost agent and its lease."""
        self._leases.end(agent)
        self._not_idle(agent)
        return self._all.pop(agent, None)

    def prepare(self, agent: AgentState) -> None:
        """The agent gets a run's code, and is not idle until it reports `Ready`."""
        agent.move(AgentStatus.PREPARING)
        self._not_idle(agent.id)

    def ready(self, agent: AgentState, run: RunId | None) -> None:
        """The agent has the code of `run` and is idle."""
        agent.move(AgentStatus.IDLE)
        agent.prepared = run
        self._now_idle(agent)

    def occupy(self, agent: AgentState, member: Member) -> None:
        """The agent, which is idle, gets a member."""
        agent.move(AgentStatus.BUSY)
        agent.member = member
        self._not_idle(agent.id)

    def renamed(self, agent_id: AgentId, message: m.MemberMessage) -> m.MemberMessage:
        """The end of a process under its present name: its agent may have sent it before it knew that name."""
        agent = self._all.get(agent_id)
        if isinstance(message, m.MemberEnded) and agent is not None and agent.former == message.member:
            return m.MemberEnded(agent.member or message.member, message.outcome)
        return message

    def release(self, agent: AgentState) -> None:
        """The agent's member has ended."""
        agent.move(AgentStatus.IDLE)
        agent.member = agent.former = None
        self._now_idle(agent)

    def _now_idle(self, agent: AgentState) -> None:
        self._idle[agent.id] = None
        if agent.gpus:
            self._idle_with_gpus[agent.id] = None

    def _not_idle(self, agent: AgentId) -> None:
        self._idle.pop(agent, None)
        self._idle_with_gpus.pop(agent, None)

    def idle_for(self, run: RunId, most: int) -> list[AgentState]:
        """Up to `most` idle agents that have the code of `run`, longest idle first."""
        idle = (agent for agent in map(self._all.__getitem__, self._idle) if agent.prepared == run)
        return list(islice(idle, most))

    def first_idle(self, run: RunId, fits: Callable[[AgentState], bool]) -> AgentState | None:
        """The idle agent for a trial of one member: one that `fits`, with GPUs if possible, longest idle.

        Looks no further than that agent: thousands may be idle when a run starts.
        """
        # With 10,000 agents, sorting them for each of n trials took longer than their leases: the coordinator dropped
        # them all.
        agents = map(self._all.__getitem__, chain(self._idle_with_gpus, self._idle))
        return next((agent for agent in agents if agent.prepared == run and fits(agent)), None)
