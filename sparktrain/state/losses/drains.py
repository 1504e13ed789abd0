"""What users have asked to drain, and which agents that concerns. Pure."""

from collections.abc import Iterable, Sequence

from sparktrain.base.ids import AgentId
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
        if record.cancels:
            self._cancel(record)
            return
        if record.agent is None:
            self.hosts.add(record.host)
        self.open[record.request] = record

    def _cancel(self, record: fact.DrainDecided) -> None:
        if record.agent is None:
            self.hosts.discard(record.host)
        # The drain of a host is that of its agents too; a notice stays, because the loss will come nevertheless.
        self.open = {
            request: other
            for request, other in self.open.items()
            if other.notice or other.host != record.host or record.agent not in (None, other.agent)
        }

    def complete(self, request: str) -> None:
        """No agent that the request concerns has a member any more."""
        self.open.pop(request, None)

    def take_over(self) -> None:
        """Another driver starts: the agents of the one before are gone."""
        self.agents.clear()
        self.open = {request: record for request, record in self.open.items() if record.agent is None}


def drained_agents(
    drains: Drains, agents: Sequence[AgentState], host: str, number: int | None
) -> tuple[str, list[AgentState], str]:
    """The host, and the agents by their numbers, with a drain of a user's that a request can cancel; or why none has.

    A host is named as in `matching_agents`, also where it has no agent now.
    """
    by_users = [agent for agent in agents if agent.id in drains.agents and not agent.notice]
    if number is not None:
        matches = [agent for agent in by_users if agent.slot == number]
        if matches:
            return matches[0].host, matches, ""
        whole = next((agent.host for agent in agents if agent.slot == number and agent.host in drains.hosts), None)
        hint = f": cancel the drain of its host, {whole}" if whole else _drained(drains, by_users)
        return "", [], f"agent {number} is not drained by its number{hint}"
    hosts = drains.hosts | {agent.host for agent in by_users}
    full = [host] if host in hosts else sorted(name for name in hosts if name.partition(".")[0] == host)
    if len(full) != 1:
        several = f"{host} may be {' or '.join(full)}: name one of them in full"
        return "", [], several if full else f"{host} is not drained{_drained(drains, by_users)}"
    return full[0], [agent for agent in by_users if agent.host == full[0]], ""


def _drained(drains: Drains, by_users: Sequence[AgentState]) -> str:
    """What users drain, for an error."""
    names = [*sorted(drains.hosts), *(f"agent {agent.slot} on {agent.host}" for agent in by_users)]
    return f": drained are {', '.join(names[:_MOST_LISTED])}; name one of these" if names else ": nothing is drained"


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
