"""The transport within one process against the contract."""

import asyncio

import pytest

from sparktrain.protocol.memory_transport import MemoryDialer, MemoryTransport
from sparktrain.protocol.transport import Dialer, Limits, Listener
from tests.support.transport_contract import TransportContract
from tests.support.transports import TransportHarness, stage


class MemoryHarness(TransportHarness):
    transport = MemoryTransport()

    def listener(self, limits: Limits) -> Listener:
        self.transport = MemoryTransport(limits)
        return self.transport.listener

    def dialer(self, address: tuple[str, int], limits: Limits) -> Dialer:
        return self.transport.dialer()

    async def vanish(self, dialer: Dialer) -> None:
        assert isinstance(dialer, MemoryDialer)
        dialer.vanish()


class TestMemoryTransport(TransportContract):
    @pytest.fixture
    def harness(self) -> TransportHarness:
        return MemoryHarness()


async def leave_an_error() -> None:
    """A scene in which a task fails that nothing awaits, and that only a collection finds."""

    async def fails() -> None:
        raise ValueError("unheard")

    async with stage(MemoryHarness()):
        task = asyncio.create_task(fails())
        await asyncio.wait({task})
        cycle: list[object] = [task]
        cycle.append(cycle)
        del task, cycle


async def test_an_error_that_nothing_awaits_fails_its_scene() -> None:
    with pytest.raises(AssertionError, match="unheard"):
        await leave_an_error()
