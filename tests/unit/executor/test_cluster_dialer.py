"""How agents find their coordinator, and which of them starts one, on a clock that the test moves."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sparktrain.config.connect_server import ConnectOperation
from sparktrain.executor import cluster_dialer
from sparktrain.executor.cluster_dialer import (
    FIRST_TURN_S,
    MOST_FAILURES,
    OVER,
    SILENT_S,
    START_S,
    ClusterDialer,
    CoordinatorProcess,
)
from sparktrain.executor.spark_task import Placement
from sparktrain.protocol.coordinator_office import CoordinatorOffice
from sparktrain.protocol.credentials import NO_CERTIFICATES
from sparktrain.protocol.ticket import AgentTicket, CoordinatorHome
from sparktrain.protocol.transport import Unreachable
from sparktrain.rundir.coordinator_folder import CallEnd, CoordinatorAddress, CoordinatorClaim, CoordinatorFolder
from sparktrain.rundir.layout import RunLayout
from sparktrain.store.localfs import LocalStore
from tests.unit.clocks import HandClock

CALL = "0123456789ab"
CLAIM = CoordinatorClaim(1, "host-1", 1, 0.0)
ADDRESS = CoordinatorAddress(("host-1",), 7, "print")


class NoProcess(CoordinatorProcess):
    """In place of the process: it notes what it would be started with."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"))
        self.offices: list[CoordinatorOffice] = []
        self.alive = True

    @property
    def lives(self) -> bool:
        return bool(self.offices) and self.alive

    def start(self, office: CoordinatorOffice) -> None:
        self.offices.append(office)


class NoDialer:
    """In place of gRPC: nothing answers."""

    refused = True

    def __init__(self, ticket: AgentTicket, **named: Any) -> None:
        self.tried = ticket.hosts

    async def attend(self, deadline_s: float) -> Any:
        raise Unreachable(f"{self.tried} does not answer", refused=self.refused)

    async def close(self) -> None:
        pass


class Agents:
    """The dialers of some slots, and the folder in which they meet."""

    def __init__(self, folder: Path, clock: HandClock) -> None:
        self.store = LocalStore(str(folder))
        self.folder = CoordinatorFolder(self.store, RunLayout("run").coordinator(CALL))
        self.clock = clock

    def dialer(self, slot: int, operation: ConnectOperation | None = None) -> tuple[ClusterDialer, NoProcess]:
        home = CoordinatorHome(self.store.address, "run", CALL, "print", b"secrets")
        place = Placement(slot, f"host-{slot}", slot, 1, None, (), (), {}, operation=operation)
        process = NoProcess()
        return ClusterDialer(AgentTicket("p", (), 0, NO_CERTIFICATES), home, place, process, (), self.clock), process


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agents:
    monkeypatch.setattr(cluster_dialer, "GrpcDialer", NoDialer)
    return Agents(tmp_path, HandClock())


async def looked(agents: Agents, dialer: ClusterDialer, for_s: float = 0.0) -> str:
    """What an agent reports that has looked for so long, at first and at the end."""
    message = ""
    for step in (0.0, for_s):
        agents.clock.at += step
        with pytest.raises(Unreachable) as raised:
            await dialer.attend(0.0)
        message = str(raised.value)
    return message


async def test_slot_0_starts_the_first_coordinator_at_once_and_others_later(agents: Agents) -> None:
    first, its_process = agents.dialer(0)
    second, other_process = agents.dialer(1)
    await looked(agents, second)
    assert other_process.offices == []
    await looked(agents, first)
    [office] = its_process.offices
    assert (office.run, office.call, office.number, office.secrets) == ("run", CALL, 1, b"secrets")
    assert agents.folder.look().claims == 1
    await looked(agents, second, FIRST_TURN_S + 1.0)
    assert other_process.offices == [], "it waits for the one that is starting"


async def test_an_agent_notes_the_operation_that_runs_it(agents: Agents) -> None:
    dialer, _ = agents.dialer(0)
    await looked(agents, dialer)
    assert agents.folder.client_trace().operations == set()
    operation = ConnectOperation(user="alice", session="s", operation="o")
    other, _ = agents.dialer(1, operation)
    await looked(agents, other, 1.0)
    assert agents.folder.client_trace().operations == {operation}


async def test_another_slot_starts_it_where_slot_0_does_not_come(agents: Agents) -> None:
    dialer, process = agents.dialer(3)
    await looked(agents, dialer, FIRST_TURN_S + 1.0)
    assert len(process.offices) == 1


async def test_a_coordinator_with_a_host_that_refuses_is_succeeded_soon(agents: Agents) -> None:
    agents.folder.claim(1, CLAIM)
    agents.folder.publish(1, ADDRESS)
    (low, low_process), (high, high_process) = agents.dialer(1), agents.dialer(9)
    await looked(agents, high)
    await looked(agents, low, 0.3)
    assert [office.number for office in low_process.offices] == [2]
    assert high_process.offices == []


async def test_a_coordinator_with_a_silent_host_has_time(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NoDialer, "refused", False)
    agents.folder.claim(1, CLAIM)
    agents.folder.publish(1, ADDRESS)
    dialer, process = agents.dialer(0)
    await looked(agents, dialer, SILENT_S - 1.0)
    assert process.offices == []
    await looked(agents, dialer, 1.5)
    assert [office.number for office in process.offices] == [2]


async def test_a_claim_that_never_listens_is_void_after_a_while(agents: Agents) -> None:
    agents.folder.claim(1, CLAIM)
    dialer, process = agents.dialer(2)
    await looked(agents, dialer, START_S - 1.0)
    assert process.offices == []
    await looked(agents, dialer, 2.0)
    assert [office.number for office in process.offices] == [2]


async def test_an_agent_replaces_its_own_coordinator_that_has_ended_at_once(agents: Agents) -> None:
    dialer, process = agents.dialer(0)
    await looked(agents, dialer)
    process.alive = False
    await looked(agents, dialer)
    assert [office.number for office in process.offices][:2] == [1, 2]


async def test_agents_give_up_after_coordinators_that_never_listen(agents: Agents) -> None:
    for number in range(1, MOST_FAILURES + 1):
        agents.folder.claim(number, CLAIM)
    dialer, process = agents.dialer(0)
    message = await looked(agents, dialer, START_S + 1.0)
    assert "5 coordinators in a row never listened: see the stderr of the executors" in message
    assert process.offices == []


async def test_agents_leave_once_the_call_has_ended(agents: Agents) -> None:
    agents.folder.claim(1, CLAIM)
    agents.folder.finish(CallEnd())
    dialer, process = agents.dialer(0)
    with pytest.raises(Unreachable, match=OVER) as raised:
        await asyncio.wait_for(dialer.attend(100.0), 5.0)
    assert raised.value.refused
    assert process.offices == []


async def test_only_the_coordinators_of_the_call_are_dialed(agents: Agents) -> None:
    agents.folder.claim(1, CLAIM)
    agents.folder.publish(1, CoordinatorAddress(("host-1",), 7, "another"))
    dialer, process = agents.dialer(0)
    await looked(agents, dialer, SILENT_S + 1.0)
    assert [office.number for office in process.offices] == [2]
