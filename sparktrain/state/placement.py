"""The next trial, and the agents that become the members of its gang. Pure."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from sparktrain.base.ids import AgentId
from sparktrain.config.gang_spec import Role
from sparktrain.state.agents import Agents, AgentState
from sparktrain.state.gangs import timeouts
from sparktrain.state.memory_snapshots import HeldSnapshots
from sparktrain.state.outcome import OF_DRAIN, FailureKind
from sparktrain.state.prospects import able, able_count, first_idle, idle
from sparktrain.state.sweep import Sweep
from sparktrain.state.topology import MemberAddress
from sparktrain.state.trial import NOT_FORMED, Trial

NO_HOLDERS: Mapping[AgentId, int] = MappingProxyType({})


def next_gang(sweep: Sweep, agents: Agents, held: HeldSnapshots, at: float) -> tuple[Trial, list[AgentState]] | None:
    """The next trial with enough idle agents for a gang, and those agents by rank; None when no gang can form.

    First come, first served: a trial that lacks agents takes them before those behind it. A trial that failed on a
    host before it entered waits for another host, as long as there is one; those behind it do not wait. Rank 0 is the
    holder of the trial's newest snapshot in memory, if there is one.
    """
    if not sweep.queue or (first := first_idle(agents, sweep, at)) is None:
        return None
    if gang_size(sweep, sweep.queue[0], agents, at) == 1 and _takes_any(sweep, sweep.queue[0], held):
        return sweep.queue[0], [first]
    idle_agents = idle(agents, sweep, at)
    for trial in sweep.queue:
        size = gang_size(sweep, trial, agents, at)
        allowed = _allowed(sweep, trial, agents, idle_agents, size)
        if len(allowed) >= size:
            shunned = _lost_on(trial)
            holders = held.of(trial.id)
            ranks = {agent: snapshot.rank for agent, snapshot in holders.items()}
            if any(snapshot.is_split for snapshot in holders.values()):
                # All parts are needed, also those on the host of a loss.
                shunned = set()
                allowed = _holders_first(allowed, ranks)[:size]
            chief = held.chief(trial.id, allowed, shunned)
            return trial, seat(allowed, size, shunned, chief, ranks, most_on_host(sweep, size))
        if len(allowed) == len(idle_agents):
            return None
    return None


def gang_size(sweep: Sweep, trial: Trial, agents: Agents, at: float) -> int:
    """Members of a trial's gang: fewer than wanted when agents are lost for good, and the run allows it."""
    full_size = sweep.limits.size
    smallest = sweep.spec.gang.min_workers
    short_since = sweep.shortage.of_whole_since
    has_formed = trial.generation != NOT_FORMED
    if smallest is None or not has_formed:
        return full_size
    # Nothing replaces the agents that a drained gang leaves: it would wait for that in vain.
    is_drained = bool(trial.restarts) and trial.restarts[-1].how in OF_DRAIN
    if not is_drained and (short_since is None or at < short_since + timeouts.REPLACEMENT_S):
        return full_size
    return max(smallest, min(full_size, able_count(agents, sweep)))


def _takes_any(sweep: Sweep, trial: Trial, held: HeldSnapshots) -> bool:
    """No agent suits the trial better than others, but for its GPUs."""
    return not (sweep.health.barred(trial.id) or _lost_on(trial) or held.of(trial.id))


def _lost_on(trial: Trial) -> set[str | None]:
    """Hosts that the trial was lost on under this driver; after a crash its checkpoint is still on the host."""
    history = trial.restart_history
    return {restart.host for restart in history.entries[history.forgiven :] if restart.kind is FailureKind.LOST}


def _allowed(
    sweep: Sweep, trial: Trial, agents: Agents, idle_agents: Sequence[AgentState], size: int
) -> Sequence[AgentState]:
    """The idle agents that the trial may get."""
    barred = sweep.health.barred(trial.id)
    if not barred or sum(agent.host not in barred for agent in able(agents.all(), sweep)) < size:
        return idle_agents
    return [agent for agent in idle_agents if agent.host not in barred]


def _holders_first(agents: Sequence[AgentState], holders: Mapping[AgentId, int]) -> list[AgentState]:
    """The agents that hold parts of a state by their ranks, then those on the same hosts, then the others."""
    hosts = {agent.host for agent in agents if agent.id in holders}
    return sorted(agents, key=lambda agent: (holders.get(agent.id, math.inf), agent.host not in hosts))


def seat(
    agents: Sequence[AgentState],
    size: int,
    shunned: Collection[str | None] = (),
    chief: AgentId | None = None,
    holders: Mapping[AgentId, int] = NO_HOLDERS,
    most: int | None = None,
) -> list[AgentState]:
    """`size` of the idle agents, by rank: on as few hosts as possible, those of one host next to each other.

    No host has more than `most` of them, if others have enough; None: any number.

    Agents with GPUs come first, for the last ranks are those that need none. Then comes `chief`, which is rank 0, with
    the agents of its host, then agents of hosts that are not `shunned`, then of the hosts with the most idle ones;
    of a host first the `holders` of a snapshot, in the order of the ranks that these had, then those that have been
    idle for longest.
    """
    if size == 1:
        return sorted(agents, key=lambda agent: (not agent.gpus, agent.id != chief, agent.host in shunned))[:1]
    ordered = sorted(agents, key=lambda agent: (agent.id != chief, holders.get(agent.id, math.inf)))
    first = ordered[0].host if chief is not None and ordered else None
    # Parameter servers and the evaluator have the last ranks and need no GPU: they took slots that have one.
    with_gpus = (agent for agent in ordered if agent.gpus)
    without = (agent for agent in ordered if not agent.gpus)
    by_host = [*_by_host(with_gpus, shunned, first), *_by_host(without, shunned, first)]
    return (by_host if most is None else _spread(by_host, size, most))[:size]


def most_on_host(sweep: Sweep, size: int) -> int | None:
    """How many members of a gang of `size` one host should have at most; None: any number.

    With half of them, a ring heals that loses all members of a host.
    """
    return max(1, size // 2) if sweep.spec.gang.spread else None


def _spread(agents: Sequence[AgentState], size: int, most: int) -> list[AgentState]:
    """The agents with the first `most` of each host before all others, in the same order otherwise."""
    hosts = Counter[str]()
    first: list[AgentState] = []
    surplus: list[AgentState] = []
    for agent in agents:
        hosts[agent.host] += 1
        (first if hosts[agent.host] <= most else surplus).append(agent)
    seated = {agent.id for agent in [*first, *surplus][:size]}
    return [agent for agent in agents if agent.id in seated]


def _by_host(agents: Iterable[AgentState], shunned: Collection[str | None], first: str | None) -> list[AgentState]:
    hosts: dict[str, list[AgentState]] = {}
    for agent in agents:
        hosts.setdefault(agent.host, []).append(agent)
    fullest_first = sorted(hosts, key=lambda host: (host != first, host in shunned, -len(hosts[host])))
    return [agent for host in fullest_first for agent in _by_machine(hosts[host])]


def _by_machine(agents: Sequence[AgentState]) -> list[AgentState]:
    """Those of one pod next to each other: some programs compute the machine of a rank from its number."""
    order: dict[tuple[str, str], int] = {}
    for agent in agents:
        order.setdefault(agent.machine, len(order))
    return sorted(agents, key=lambda agent: order[agent.machine])


def places(agents: Sequence[AgentState], roles: Sequence[Role]) -> tuple[MemberAddress, ...]:
    """The places of the members, their ports not reserved yet."""
    return tuple(MemberAddress(agent.host, agent.address, 0, role) for agent, role in zip(agents, roles, strict=True))
