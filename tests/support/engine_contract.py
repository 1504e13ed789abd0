"""What every engine of agents must do: start them, restart the lost, report which have left, and end them."""

import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from sparktrain.driver.engines.engine import AgentBatch, Engine, JobEnd
from sparktrain.driver.event_loop import call
from sparktrain.errors import ProtocolError
from sparktrain.protocol import messages as m
from sparktrain.protocol.certificates import issue
from sparktrain.protocol.grpc import GrpcListener
from sparktrain.protocol.ticket import AgentTicket
from sparktrain.protocol.transport import Link, LinkClosedError
from tests.support.processes import Sighted, wait_until

JOIN_S = 60.0
"""Spark may have to start an executor first."""
END_S = 30.0


Start = Callable[[range], AgentBatch]


class Reception:
    """A stand-in for the coordinator: lets agents join, keeps them, and dismisses them when the test asks."""

    def __init__(self, engine: Engine) -> None:
        self.joins: list[m.Join] = []
        self._links: dict[int, Link] = {}
        certificates = issue("contract")
        address = engine.address()
        self._listener = GrpcListener(address.bind, (address.port,), certificates.server)
        _, port = call(self._listener.start(self._serve, self._upload), END_S)
        self.ticket = AgentTicket("contract", address.hosts, port, certificates.agent, 15.0, engine.refused_s())

    def wait(self, agents: int) -> list[m.Join]:
        """Wait until this many agents have joined in all."""
        wait_until(lambda: len(self.joins) >= agents, JOIN_S, f"{agents} agents have joined")
        return self.joins

    def dismiss(self, slot: int) -> None:
        """Have the newest agent of `slot` leave."""
        call(self._post(self._links[slot], m.Dismiss("the contract is over")), END_S)

    def close(self) -> None:
        """Stop listening."""
        call(self._listener.close(1.0), END_S)

    async def _serve(self, link: Link) -> None:
        join = await link.receive()
        assert isinstance(join, m.Join)
        self._links[join.slot] = link
        await self._post(link, m.Welcome(1.0, 30.0, ()))
        self.joins.append(join)
        try:
            while not isinstance(message := await link.receive(), m.Leave):
                if isinstance(message, m.Heartbeat):
                    link.post(m.HeartbeatAck())
        except LinkClosedError:
            return

    async def _post(self, link: Link, message: m.ToAgent) -> None:
        link.post(message)

    async def _upload(self, header: m.UploadHeader, chunks: AsyncIterator[bytes]) -> m.UploadDone:
        raise ProtocolError("no agent uploads here")


class EngineContract:
    """Tests of an engine with two slots or more. Subclasses have a fixture `engine`."""

    @pytest.fixture
    def reception(self, engine: Engine) -> Iterator[Reception]:
        """Where agents join."""
        made = Reception(engine)
        yield made
        made.close()

    @pytest.fixture
    def ends(self) -> list[JobEnd]:
        """How batches have ended."""
        return []

    @pytest.fixture
    def start(self, engine: Engine, reception: Reception, ends: list[JobEnd]) -> Iterator[Start]:
        """Starts a batch for some slots; in the end it is cancelled."""
        batches: list[AgentBatch] = []

        def starts(slots: range) -> AgentBatch:
            held = range(slots.stop)
            made = engine.batch(reception.ticket, slots, held, ends.append, without_gpus=False)
            batches.append(made)
            made.start()
            return made

        yield starts
        for each in batches:
            each.cancel()

    def test_it_has_an_agent_in_each_slot(self, reception: Reception, start: Start, ends: list[JobEnd]) -> None:
        batch = start(range(2))
        joins = reception.wait(2)
        assert {each.slot for each in joins} == {0, 1}
        assert len({each.pid for each in joins}) == 2
        assert batch.vacant() == set()
        assert batch.lacking() is None
        assert not batch.join(0.0)
        assert ends == []

    def test_the_slot_of_an_agent_that_leaves_is_vacant_until_another_batch_has_it(
        self, reception: Reception, start: Start, ends: list[JobEnd]
    ) -> None:
        batch = start(range(2))
        reception.wait(2)
        reception.dismiss(1)
        wait_until(lambda: batch.vacant() == {1}, END_S, "slot 1 is vacant")
        assert ends == []
        start(range(1, 2))
        assert reception.wait(3)[2].slot == 1
        assert not batch.join(0.0)

    def test_it_ends_when_all_agents_have_left_and_reports_how_each_ended(
        self, reception: Reception, start: Start, ends: list[JobEnd]
    ) -> None:
        batch = start(range(2))
        reception.wait(2)
        for slot in range(2):
            reception.dismiss(slot)
        assert batch.join(END_S)
        [end] = ends
        assert sorted(end.exits) == [(slot, "the contract is over", True) for slot in range(2)]
        assert end.error is None
        assert end.missing is None
        assert batch.vacant() == {0, 1}

    def test_an_agent_that_is_killed_is_followed_by_another_in_its_slot(
        self, engine: Engine, reception: Reception, start: Start, ends: list[JobEnd]
    ) -> None:
        batch = start(range(2))
        victim = next(each for each in reception.wait(2) if each.slot == 1)
        os.kill(victim.pid, signal.SIGKILL)
        newest = reception.wait(3)[2]
        assert newest.slot == 1
        assert newest.agent != victim.agent
        assert newest.task != victim.task
        assert batch.vacant() == set()
        assert ends == []
        if (reasons := engine.loss_reasons()) is not None:
            assert victim.task is not None
            assert "SIGKILL" in reasons([victim.task])[victim.task.id]

    def test_cancelled_it_leaves_no_agent(self, reception: Reception, start: Start, ends: list[JobEnd]) -> None:
        batch = start(range(2))
        agents = Sighted(each.pid for each in reception.wait(2))
        batch.cancel()
        agents.wait_gone(END_S)
        assert batch.join(END_S)
        assert len(ends) == 1
        batch.cancel()
