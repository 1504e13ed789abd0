"""What users have asked to drain, and which agents that concerns. Pure."""

from collections.abc import Iterable, Sequence

from sparktrain.ids import AgentId
from sparktrain.state import records as fact
from sparktrain.state.agents import AgentState


class Drains:
    """The hosts and agents of one run that get no new member.

    A host stays drained for the whole run, under later drivers too, with the agents that join there later. The drain
    of an agent by its number ends with its driver: the next driver has other agents.
    """

    def __init__(self) -> None:
        self.hosts: set[str] = set()
        self.agents: set[AgentId] = set()
        self.open: dict[str, fact.DrainDecided] = {}
        """The accepted requests, by their ids, as long as an agent that they concern may have a member."""
        self.answered: set[str] = set()
        """The ids of all requests that a driver has decided on."""

    @property
    def active(self) -> bool:
        """Whether any agent may be drained."""
        return bool(self.hosts or self.agents)

    def covers(self, agent: AgentState) -> bool:
        """Whether `agent` is drained."""
        return agent.host in self.hosts or agent.id in self.agents

    def fold(self, record: fact.DrainDecided) -> None:
        """A request was decided on, under this driver or one before."""
        self.answered.add(record.request)
        if record.problem:
            return
        if record.agent is None:
            self.hosts.add(record.host)
        self.open[record.request] = record

    def complete(self, request: str) -> None:
        """No agent that the request concerns has a member any more."""
        self.open.pop(request, None)

    def take_over(self) -> None:
        """Another driver starts: the agents of the one before are gone."""
        self.agents.clear()
        self.open = {request: record for request, record in self.open.items() if record.agent is None}


def matching_agents(agents: Sequence[AgentState], host: str, number: int | None) -> tuple[list[AgentState], str]:
    """The agents that a request names by their host or by their number, or why it names none.

    A host may be named without its domain, as status does, where one alone has this name.
    """
    if number is not None:
        matches = [agent for agent in agents if agent.slot == number]
        return (matches, "") if matches else ([], f"the run has no agent {number}: {_listed(agents)}")
    hosts = {agent.host for agent in agents}
    if host in hosts:
        return [agent for agent in agents if agent.host == host], ""
    short = sorted(name for name in hosts if name.partition(".")[0] == host)
    if len(short) > 1:
        return [], f"{host} may be {' or '.join(short)}: name one of them in full"
    if not short:
        return [], f"the run has no agent on {host}: {_listed(agents)}"
    return [agent for agent in agents if agent.host == short[0]], ""


_MOST_LISTED = 20


def _listed(agents: Iterable[AgentState]) -> str:
    """The agents that there are, for an error."""
    names = [f"{agent.slot} on {agent.host}" for agent in sorted(agents, key=lambda agent: (agent.host, agent.slot))]
    if not names:
        return "it has none now; wait until agents have joined"
    remainder = f", and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return f"its agents are {', '.join(names[:_MOST_LISTED])}{remainder}; name one of these"
