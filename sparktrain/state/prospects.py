"""Which agents a run can count on, and when it ends because it lacks them, or because its trials fail. Pure."""

import math
from collections.abc import Collection, Iterable

from sparktrain.state.agents import Agents, AgentState
from sparktrain.state.ending import Ending, Stop
from sparktrain.state.sweep import Sweep
from sparktrain.state.trial import Trial, TrialStatus

AGENTS_TIMEOUT_S = 10.0
"""How long a function that the first hosts could not load waits for agents that have not joined yet."""


def able(agents: Iterable[AgentState], sweep: Sweep) -> list[AgentState]:
    """Agents that may get members of the run, now or later."""
    if _takes_all(sweep):
        return list(agents)
    hopeless = _hopeless_hosts(sweep)
    drains = sweep.drains
    well = (agent for agent in agents if agent.host not in hopeless and not sweep.health.excluded(agent))
    return [agent for agent in well if not drains.covers(agent)]


def able_count(agents: Agents, sweep: Sweep) -> int:
    """How many agents are `able`."""
    # Each run asks at each tick: twenty runs that each looked at 10,000 agents took more time than there is.
    return len(agents) if _takes_all(sweep) else len(able(agents.all(), sweep))


def _takes_all(sweep: Sweep) -> bool:
    """No agent is excluded, backs off or is drained, and each host can load the training function."""
    return sweep.health.all_well and not sweep.drains.active and not _hopeless_hosts(sweep)


def accepts(agent: AgentState, sweep: Sweep) -> bool:
    """The agent may get members of the run, now or later: it is one of `able`."""
    if sweep.health.all_well and not sweep.drains.active:
        return True
    excluded = agent.host in _hopeless_hosts(sweep) or sweep.health.excluded(agent)
    return not (excluded or sweep.drains.covers(agent))


def has_member_of(agent: AgentState, sweep: Sweep) -> bool:
    """The agent has a member of this run, and of no other one."""
    return agent.member is not None and agent.member.run == sweep.run


def useful(agents: Agents, sweep: Sweep) -> int:
    """How many agents are `able`, or drained and have a member: what is left to finish there is no shortage."""
    drains = sweep.drains
    busy = 0
    if drains.active:
        busy = sum(has_member_of(agent, sweep) and drains.covers(agent) for agent in agents.all())
    return able_count(agents, sweep) + busy


def idle(agents: Agents, sweep: Sweep, at: float) -> list[AgentState]:
    """Agents that may get a member now, longest idle first: none on a host that others cannot reach."""
    idle_agents = able(agents.idle_for(sweep.run, len(agents)), sweep)
    return [agent for agent in idle_agents if not (sweep.health.backs_off(agent, at) or agents.is_doubted(agent.id))]


def idle_count(agents: Agents, sweep: Sweep, at: float) -> int:
    """How many agents are `idle`."""
    if _takes_all(sweep) and not agents.has_doubted:
        return agents.idle_count(sweep.run)
    return len(idle(agents, sweep, at))


def room(sweep: Sweep, agents: Agents) -> float:
    """How many agents more the run may have."""
    most = sweep.limits.allotment.most
    return math.inf if most is None else most - agents.busy_count(sweep.run)


def case_demand(sweep: Sweep, agents: Agents, at: float) -> int:
    """Cases to ask the sampler for: as many as can start now, and some that the next free agents find waiting."""
    start = int(min(idle_count(agents, sweep, at), room(sweep, agents))) // sweep.limits.size
    return -(-start // sweep.cases.size) + sweep.limits.lookahead if start or sweep.gangs else 0


def first_idle(agents: Agents, sweep: Sweep, at: float) -> AgentState | None:
    """The one of `idle` that has GPUs, if one has, and is idle for longest."""
    hopeless = _hopeless_hosts(sweep)
    drains = sweep.drains
    return agents.first_idle(
        sweep.run,
        lambda agent: agent.host not in hopeless and not sweep.health.backs_off(agent, at) and not drains.covers(agent),
    )


def _hopeless_hosts(sweep: Sweep) -> Collection[str]:
    """Hosts that could not load the training function, as long as none could."""
    return sweep.health.unloadable if not sweep.ever_entered else ()


def elsewhere(agents: Agents, sweep: Sweep, at: float) -> bool:
    """A member that failed before it entered may enter on hosts without such a failure, or on hosts that join later."""
    health = sweep.health
    limits = sweep.limits
    healthy_agents = [agent for agent in able(agents.all(), sweep) if not health.failed_on(agent.host)]
    since = at if health.first_failed_at is None else health.first_failed_at
    awaited = len(agents) < limits.agents and at < since + AGENTS_TIMEOUT_S
    return awaited or len(healthy_agents) >= limits.least


def hopeless(agents: Agents, sweep: Sweep, at: float) -> Stop | None:
    """Why the run must end: agents are missing for too long, are all excluded, or none can load the function."""
    health = sweep.health
    limits = sweep.limits
    start_timeout_s = sweep.spec.start_timeout_s
    fit = able_count(agents, sweep)
    late = sweep.shortage.of_least_since is not None and at >= sweep.shortage.of_least_since + start_timeout_s
    if health.unloadable and not (sweep.gangs or sweep.ever_entered or elsewhere(agents, sweep, at)):
        return Stop(next(iter(health.unloadable.values())).summary, Ending.UNLOADABLE)
    if fit < limits.least and (note := health.exclusions(agents.all())):
        return Stop(note, Ending.UNAVAILABLE) if late or len(agents) >= limits.agents else None
    if not late:
        return None
    drained = sum(sweep.drains.covers(agent) for agent in agents.all()) if sweep.drains.active else 0
    also = f"; {drained} more {'is' if drained == 1 else 'are'} drained" if drained else ""
    alive = len(agents) - drained
    reason = f"{alive} of {limits.least} agents that a trial needs within {start_timeout_s:g} s{also}"
    return Stop(reason, Ending.NO_AGENTS)


def failing(sweep: Sweep, trial: Trial) -> str:
    """Why the run ends now that the trial has failed, and what to do; empty if it continues or is over anyway."""
    if trial.status is not TrialStatus.FAILED or trial.failure is None or sweep.stop is not None or sweep.over:
        return ""
    reason = sweep.failures.reason(trial.failure)
    if not reason:
        return ""
    unfinished = sum(not other_trial.status.observed for other_trial in sweep.trials.values())
    unfinished += max(0, (sweep.limits.total or 0) - len(sweep.trials))
    of = f" of {sweep.limits.total}" if sweep.limits.total is not None else ""
    return (
        f"{reason}; {unfinished}{of} trials have no result. Fix the function and call it again under this name with "
        "retry_failed=True, allow_changed='code' (--retry-failed --allow-changed code), or continue as it is with "
        "max_failures=None (--max-failures none)"
    )
