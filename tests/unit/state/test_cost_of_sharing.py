"""Several runs share any number of agents: no tick and no message makes the machine look at all of them."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from sparktrain.ops.simulation.shared_pool import SimulatedCall, VirtualPool
from sparktrain.state.agents import Agents

CALLS = 6
AGENTS = 120
SECONDS = 6.0
MOST_LOOKS = 2 * CALLS
"""At each agent: some at the start and the end of each run. A look at all at each tick makes it 200, and one at each
event some thousands."""
LISTS = ("all", "free", "idle_for", "newest_free")
"""The methods of `Agents` that list agents."""


class Looks:
    """Counts the agents that the methods which list them return."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for name in LISTS:
            monkeypatch.setattr(Agents, name, self._counting(getattr(Agents, name)))

    def _counting(self, listed: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
        def count(*arguments: Any) -> Any:
            agents = listed(*arguments)
            if isinstance(agents, list):
                self.count += len(agents)
                return agents
            return self._one_by_one(agents)

        return count

    def _one_by_one(self, agents: Iterable[Any]) -> Iterable[Any]:
        for agent in agents:
            self.count += 1
            yield agent


def test_no_tick_and_no_message_looks_at_all_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    # Five of the calls end on the way, and give their agents to the others.
    short = [SimulatedCall(name=f"call-{number}", trials=AGENTS // 4) for number in range(1, CALLS)]
    pool = VirtualPool([SimulatedCall(name="call-0"), *short], AGENTS)
    looks = Looks(monkeypatch)
    uses = pool.run(SECONDS)
    assert all(use.waited_s is not None for use in uses)
    assert looks.count / AGENTS <= MOST_LOOKS, f"{looks.count / AGENTS:.0f} looks at each agent"
