"""What a join and a command cost does not grow with the number of agents: calls are counted for n agents and 4 n."""

import asyncio
from collections.abc import Callable

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import AgentId, Generation, Member, RunId, TrialId
from sparktrain.driver.gpu_claims import GpuClaims
from sparktrain.driver.journal_writer import JournalWriter
from sparktrain.protocol import messages as m
from sparktrain.state import commands as do
from sparktrain.state.records import GangFormed
from tests.support.call_count import counted
from tests.unit.driver.journals import NoJournal

FEW, MANY = 60, 240
GROWTH = 1.5
"""Of the calls for each agent, from `FEW` to `MANY` of them; a scan for each of them makes it 4."""


def claim_gpus(agents: int) -> int:
    """Agents join, each on a host of its own with a GPU."""
    claims = GpuClaims(SystemClock())

    async def join_all() -> None:
        for slot in range(agents):
            joins = m.Join(
                agent=AgentId(f"a{slot}"),
                slot=slot,
                host=f"host-{slot}",
                pid=1,
                versions={},
                devices=("gpu-0",),
                executor=slot,
            )
            assert await claims.take(joins) == ""

    return counted(lambda: asyncio.run(join_all()))


def hold_back(agents: int) -> int:
    """The store is busy with the records of all gangs, and each agent is sent something more."""
    performed: list[do.Command] = []
    writer = JournalWriter(NoJournal(), [], performed.append, SystemClock(), lambda work: None)
    members = [Member(RunId("run"), TrialId(slot), Generation(1)) for slot in range(agents)]
    for slot, member in enumerate(members):
        writer.take(do.WriteRecord(GangFormed(trial=member.trial, generation=member.generation, hosts=("host",))))
        writer.take(do.PlaceMember(AgentId(f"a{slot}"), member, 1, {}, None))

    def work() -> None:
        for slot, member in enumerate(members):
            writer.take(do.Send(AgentId(f"a{slot}"), m.Advise(member)))
            writer.take(do.Send(AgentId(f"idle-{slot}"), m.Advise(member)))

    calls = counted(work)
    assert len(performed) == agents, "what is for an agent without a held command"
    return calls


@pytest.mark.parametrize("work", [claim_gpus, hold_back])
def test_an_agent_costs_the_same_beside_more_agents(work: Callable[[int], int]) -> None:
    few, many = work(FEW) / FEW, work(MANY) / MANY
    assert many < GROWTH * few, f"{many:.0f} calls for each of {MANY} agents, {few:.0f} for each of {FEW}"
