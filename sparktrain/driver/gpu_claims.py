"""Which agent uses which GPU: two agents on one GPU would train at half the speed, or run out of its memory."""

from dataclasses import dataclass
from typing import Protocol

from sparktrain.clock import Clock
from sparktrain.ids import AgentId
from sparktrain.protocol import messages as m

DEAD_S = 15.0
"""An agent that sends nothing for so long does not block a new one: it is lost, and its loss not yet detected."""
_POLL_S = 0.05


class Holds(Protocol):
    """An agent or slot that may have GPUs."""

    @property
    def slot(self) -> int:
        """Slot of the Spark job."""
        ...

    @property
    def host(self) -> str:
        """Its host."""
        ...

    @property
    def executor(self) -> int:
        """Spark's process that all agents of one executor share."""
        ...

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of its GPUs, which differ between all GPUs of the host."""
        ...


@dataclass
class _Holder:
    join: m.Join
    heard_at: float


class GpuClaims:
    """The GPUs of agents. All methods belong to the coordinator's event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._holders: dict[AgentId, _Holder] = {}
        self._on_host: dict[str, dict[AgentId, _Holder]] = {}
        """The same by host."""

    async def take(self, join: m.Join) -> str:
        """Note the GPUs of an agent that joins; returns why it may not have them, when a live agent has one of them.

        Takes `DEAD_S` seconds at most: the other agent may be dead, and must send a heartbeat first.
        """
        started = self._clock.now()
        while (holder := self._rival(join)) is not None and self._clock.now() - started < DEAD_S:
            if holder.heard_at > started:
                return conflict(holder.join, join)
            await self._clock.sleep(_POLL_S)
        self.free(join.agent)  # of a life before, perhaps on another host
        self._holders[join.agent] = holder = _Holder(join, self._clock.now())
        self._on_host.setdefault(join.host, {})[join.agent] = holder
        return ""

    def heard(self, agent: AgentId) -> None:
        """The agent is alive."""
        if agent in self._holders:
            self._holders[agent].heard_at = self._clock.now()

    def free(self, agent: AgentId) -> None:
        """The agent is gone."""
        holder = self._holders.pop(agent, None)
        if holder is None:
            return
        there = self._on_host[holder.join.host]
        del there[agent]
        if not there:
            del self._on_host[holder.join.host]

    def _rival(self, join: m.Join) -> _Holder | None:
        """An agent that has one of the GPUs."""
        there = self._on_host.get(join.host, {})
        return next((each for each in there.values() if conflict(each.join, join)), None)


def conflict(one: Holds, other: Holds) -> str:
    """Why two agents of one host cannot both train, and what to do; empty when they can.

    Those of one executor can: within it, Spark may divide a GPU.
    """
    shared = sorted(set(one.devices) & set(other.devices))
    if one.host != other.host or one.executor == other.executor or not shared:
        return ""
    return (
        f"agents {one.slot} and {other.slot} have the same GPU, {shared[0]} on {other.host}: Spark's "
        "discovery script reports the same ones to all executors of a host; set "
        "spark.executor.resource.gpu.discoveryScript to conf/gpu-discovery.sh, which does not"
    )
