"""Which agents a run can count on, and when it ends because it lacks them. Pure."""

from collections.abc import Iterable, Sequence

from sparktrain.state.agents import Agents, AgentState
from sparktrain.state.sweep import Ending, Stop, Sweep

AGENTS_TIMEOUT_S = 10.0
"""How long a function that the first hosts could not load waits for agents that have not joined yet."""


def able(agents: Iterable[AgentState], sweep: Sweep) -> list[AgentState]:
    """Agents that may get members of the run, now or later."""
    hopeless = sweep.health.unloadable if not sweep.ever_entered else {}
    return [agent for agent in agents if agent.host not in hopeless and not sweep.health.excluded(agent)]


def idle(agents: Agents, sweep: Sweep, at: float) -> list[AgentState]:
    """Agents that may get a member now, longest idle first."""
    there = able(agents.idle_for(sweep.run, len(agents)), sweep)
    return [agent for agent in there if not sweep.health.backs_off(agent, at)]


def elsewhere(alive: Sequence[AgentState], sweep: Sweep, at: float) -> bool:
    """A member that failed before it entered may enter on hosts without such a failure, or on hosts that join later."""
    health, limits = sweep.health, sweep.limits
    others = [agent for agent in able(alive, sweep) if not health.failed_on(agent.host)]
    since = at if health.first_failed_at is None else health.first_failed_at
    awaited = len(alive) < limits.agents and at < since + AGENTS_TIMEOUT_S
    return awaited or len(others) >= limits.least


def hopeless(alive: Sequence[AgentState], sweep: Sweep, at: float) -> Stop | None:
    """Why the run must end: agents are missing for too long, are all excluded, or none can load the function."""
    health, limits, fit = sweep.health, sweep.limits, len(able(alive, sweep))
    late = sweep.too_few_since is not None and at >= sweep.too_few_since + limits.start_timeout_s
    if health.unloadable and not (sweep.gangs or sweep.ever_entered or elsewhere(alive, sweep, at)):
        return Stop(next(iter(health.unloadable.values())).summary, Ending.UNLOADABLE)
    if fit < limits.least and (note := health.exclusions(alive)):
        return Stop(note, Ending.UNAVAILABLE) if late or len(alive) >= limits.agents else None
    reason = f"{len(alive)} of {limits.least} agents that a trial needs within {limits.start_timeout_s:g} s"
    return Stop(reason, Ending.NO_AGENTS) if late else None
