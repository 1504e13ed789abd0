"""An agent as the coordinator knows it, and all agents that are alive.

An agent is of one run at a time: of that which it has the code of, or gets it. It changes its run only between two
members. Code that it has got stays with it, so that it comes back to a run at once.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain, islice

from sparktrain.base.ids import AgentId, Member, RunId
from sparktrain.state import agent_messages as m
from sparktrain.state.liveness import Leases
from sparktrain.state.transitions import check_move

MOST_CODES = 16
"""An agent counts as having the code of so many runs: it removes older code after some more, see `executor.code`, in an
order that may differ a little."""


class AgentStatus(Enum):
    """The status of an agent, as the coordinator sees it."""

    PREPARING = "starting its zygote, or loading a run's code"
    IDLE = "can start a member at once"
    BUSY = "has a member"


_LEGAL = {
    AgentStatus.PREPARING: (AgentStatus.PREPARING, AgentStatus.IDLE, AgentStatus.BUSY),
    AgentStatus.IDLE: (AgentStatus.PREPARING, AgentStatus.BUSY),
    AgentStatus.BUSY: (AgentStatus.IDLE,),
}


@dataclass(slots=True)
class AgentState:
    """One life of one agent."""

    id: AgentId
    slot: int
    host: str
    """Where it is, in a pod the node: what fails on a host, is drained or spread, concerns all its pods."""
    address: str = "127.0.0.1"
    """IP address of its machine or pod, which other agents reach."""
    gpus: int = 0
    """GPUs that Spark gives its members."""
    status: AgentStatus = AgentStatus.PREPARING
    run: RunId | None = None
    """The run that it is of: no other one gives it members."""
    codes: dict[RunId, None] = field(default_factory=dict)
    """The runs that it has the code of, the newest last."""
    member: Member | None = None
    former: Member | None = None
    """The name under which the process of its member has started, where that has another one since."""
    notice: str = ""
    """What announced that the agent leaves, in a few words; empty while nothing has."""
    leaves_within_s: float | None = None
    """For how long it stays then at most; None where that is not known."""

    @property
    def machine(self) -> tuple[str, str]:
        """See `MemberAddress.machine`."""
        return self.host, self.address

    def move(self, status: AgentStatus) -> None:
        """Change to `status`. Raises IllegalMoveError for a move that is not legal."""
        self.status = check_move(f"agent {self.id}", self.status, status, _LEGAL)

    def learn(self, run: RunId) -> None:
        """It has got the code of `run`."""
        self.codes.pop(run, None)
        self.codes[run] = None
        if len(self.codes) > MOST_CODES:
            del self.codes[next(iter(self.codes))]

    def rename(self, member: Member) -> None:
        """Its process is `member` from now on."""
        self.former = self.member
        self.member = member


class Agents:
    """The agents that are alive, their leases, and those of each run that are idle, longest idle first."""

    def __init__(self, lease_s: float) -> None:
        self._leases = Leases(lease_s)
        self._all: dict[AgentId, AgentState] = {}
        self._joined_at: dict[AgentId, float] = {}
        self._idle: dict[RunId | None, dict[AgentId, None]] = {}
        self._idle_with_gpus: dict[RunId | None, dict[AgentId, None]] = {}
        """Those of `_idle` that have GPUs, in the same order."""
        self._free: dict[RunId | None, dict[AgentId, None]] = {}
        """Those without a member: idle, or being prepared."""
        self._busy = Counter[RunId | None]()
        """How many of each run have a member."""
        self._released: dict[AgentId, None] = {}
        """Those that have become free since the last `take_released`."""
        self._shared_when_ready: set[AgentId] = set()
        """Those that load code, and that another run may have once they are ready."""
        self._arrived: dict[AgentId, None] = {}
        """Those of them that have become ready since the last `take_arrived`."""
        self.entered = Counter[int]()
        """How often a member has entered the training function, by the slot of its agent, which may be lost since."""
        self.held: dict[AgentId, m.HeldMember] = {}
        """The members that agents had when they joined, until there is a decision about them."""

    def __len__(self) -> int:
        return len(self._all)

    def get(self, agent: AgentId) -> AgentState | None:
        """The agent, or None when it is lost or was never there."""
        return self._all.get(agent)

    def all(self) -> list[AgentState]:
        """All agents that are alive, in the order in which they joined."""
        return list(self._all.values())

    def has(self, count: int, fits: Callable[[AgentState], bool]) -> bool:
        """Whether `count` agents fit. Looks no further than at these."""
        return len(list(islice(filter(fits, self._all.values()), count))) == count

    def free(self, run: RunId | None) -> list[AgentState]:
        """The agents of a run that have no member, those that have been free for longest first; None: of no run."""
        return [self._all[agent] for agent in self._free.get(run, ())]

    def starting(self, run: RunId, since: float) -> list[AgentState]:
        """The agents of a run that have joined after `since`, and can start no member yet."""
        preparing = [agent for agent in self.free(run) if agent.status is AgentStatus.PREPARING]
        return [agent for agent in preparing if self._joined_at[agent.id] > since]

    def newest_free(self, run: RunId | None) -> Iterable[AgentState]:
        """As `free`, those that have been free for the shortest time first; none of them before it is asked for."""
        return map(self._all.__getitem__, reversed(self._free.get(run, {})))

    def free_count(self, run: RunId | None) -> int:
        """How many agents of a run have no member."""
        return len(self._free.get(run, ()))

    def busy_count(self, run: RunId) -> int:
        """How many agents of a run have a member."""
        return self._busy[run]

    def idle_count(self, run: RunId) -> int:
        """How many agents of a run can start a member at once."""
        return len(self._idle.get(run, ()))

    def runs_with_free(self) -> Iterable[RunId | None]:
        """The runs, also those that are over, with agents that have no member; None for agents of no run."""
        return [run for run, agents in self._free.items() if agents]

    def take_released(self) -> list[AgentState]:
        """The agents that have become free since the last call and are alive."""
        released = [self._all[agent] for agent in self._released if agent in self._all]
        self._released.clear()
        return released

    def share_when_ready(self, agent: AgentState) -> None:
        """A run has come while the agent loads code: once it is ready it goes to the run that is owed most."""
        self._shared_when_ready.add(agent.id)

    @property
    def have_arrived(self) -> bool:
        """Agents for other runs have become ready."""
        return bool(self._arrived)

    def take_arrived(self) -> list[AgentState]:
        """The agents for other runs that have become ready since the last call."""
        if not self._arrived:
            return []
        arrived = [self._all[agent] for agent in self._arrived]
        self._arrived.clear()
        return arrived

    def join(self, agent: AgentState, at: float) -> None:
        """Add an agent that is not idle yet; its lease starts."""
        self._all[agent.id] = agent
        self._joined_at[agent.id] = at
        self._free.setdefault(agent.run, {})[agent.id] = None
        self._leases.renew(agent.id, at)

    def renew_lease(self, agent: AgentId, at: float) -> None:
        """A message of the agent shows that it is alive."""
        self._leases.renew(agent, at)

    def doubt(self, agent_id: AgentId, at: float) -> list[AgentId]:
        """Others cannot reach the host of the agent: all agents there are soon lost, each unless it is heard of.

        Other pods of a node too: it may be the node that is silent. Returns those that are to show that they are alive.
        """
        doubted = self._all.get(agent_id)
        if doubted is None or not self._leases.doubt(agent_id, at):
            return []
        neighbors = [agent.id for agent in self._all.values() if agent.host == doubted.host]
        return [agent_id, *(agent for agent in neighbors if self._leases.doubt(agent, at))]

    def is_doubted(self, agent: AgentId) -> bool:
        """Whether others cannot reach the host of the agent, and nothing was heard of it since."""
        return self._leases.is_doubted(agent)

    @property
    def has_doubted(self) -> bool:
        """Others cannot reach the host of some agent."""
        return self._leases.has_doubted

    def woke(self, at: float) -> float:
        """For how long the coordinator was suspended before `at`, see `Leases.woke`."""
        return self._leases.woke(at)

    def expired(self, at: float) -> dict[AgentId, str]:
        """Agents with a lease that ran out before `at`, in the order in which they joined, and why."""
        return self._leases.expired(at)

    def remove(self, agent_id: AgentId) -> AgentState | None:
        """Remove a lost agent and its lease."""
        self._leases.end(agent_id)
        self.held.pop(agent_id, None)
        agent = self._all.pop(agent_id, None)
        if agent is None:
            return None
        del self._joined_at[agent_id]
        self._not_idle(agent)
        self._released.pop(agent_id, None)
        self._arrived.pop(agent_id, None)
        self._shared_when_ready.discard(agent_id)
        if agent.status is AgentStatus.BUSY:
            self._busy[agent.run] -= 1
        else:
            del self._free[agent.run][agent_id]
        return agent

    def forget_code(self, run: RunId) -> None:
        """A run starts: no agent has its code, though an earlier one may have had its name."""
        for agent in self._all.values():
            agent.codes.pop(run, None)

    def prepare(self, agent: AgentState, run: RunId) -> bool:
        """The agent, which has no member, is of `run` from now on; returns whether it must get the code.

        Then it is not idle until it reports `Ready`.
        """
        self._not_idle(agent)
        del self._free[agent.run][agent.id]
        self._arrived.pop(agent.id, None)
        self._shared_when_ready.discard(agent.id)
        agent.run = run
        self._free.setdefault(run, {})[agent.id] = None
        if run not in agent.codes:
            agent.move(AgentStatus.PREPARING)
            return True
        if agent.status is AgentStatus.IDLE:
            self._now_idle(agent)
        return False

    def ready(self, agent: AgentState, run: RunId | None) -> None:
        """The agent has the code of `run`, or has started where it is of no run, and is idle."""
        agent.move(AgentStatus.IDLE)
        if run is not None:
            agent.learn(run)
        if agent.id in self._shared_when_ready:
            self._shared_when_ready.discard(agent.id)
            self._arrived[agent.id] = None
        self._now_idle(agent)

    def occupy(self, agent: AgentState, member: Member) -> None:
        """The agent, which is idle, gets a member."""
        agent.move(AgentStatus.BUSY)
        agent.member = member
        self._not_idle(agent)
        del self._free[agent.run][agent.id]
        self._busy[agent.run] += 1
        self._released.pop(agent.id, None)
        self._arrived.pop(agent.id, None)

    def adopt(self, agent: AgentState, member: Member) -> None:
        """The agent, which has no member yet, has held this one, and the code of its run."""
        self.held.pop(agent.id, None)
        if agent.status is AgentStatus.IDLE:
            self._not_idle(agent)
        del self._free[agent.run][agent.id]
        self._released.pop(agent.id, None)
        self._arrived.pop(agent.id, None)
        self._shared_when_ready.discard(agent.id)
        agent.run = member.run
        agent.learn(member.run)
        agent.move(AgentStatus.BUSY)
        agent.member = member
        self._busy[agent.run] += 1

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
        self._busy[agent.run] -= 1
        self._free.setdefault(agent.run, {})[agent.id] = None
        self._released[agent.id] = None
        self._now_idle(agent)

    def _now_idle(self, agent: AgentState) -> None:
        self._idle.setdefault(agent.run, {})[agent.id] = None
        if agent.gpus:
            self._idle_with_gpus.setdefault(agent.run, {})[agent.id] = None

    def _not_idle(self, agent: AgentState) -> None:
        self._idle.get(agent.run, {}).pop(agent.id, None)
        self._idle_with_gpus.get(agent.run, {}).pop(agent.id, None)

    def idle_for(self, run: RunId, most: int) -> list[AgentState]:
        """Up to `most` idle agents of `run`, longest idle first."""
        return [self._all[agent] for agent in islice(self._idle.get(run, ()), most)]

    def first_idle(self, run: RunId, fits: Callable[[AgentState], bool]) -> AgentState | None:
        """The idle agent for a trial of one member: one that `fits`, with GPUs if possible, longest idle.

        Looks no further than that agent: thousands may be idle when a run starts.
        """
        # With 10,000 agents, sorting them for each of n trials took longer than their leases: the coordinator dropped
        # them all.
        idle = chain(self._idle_with_gpus.get(run, ()), self._idle.get(run, ()))
        return next((agent for agent in map(self._all.__getitem__, idle) if fits(agent)), None)
