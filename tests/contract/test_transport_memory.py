"""The transport within one process against the contract."""

import pytest

from sparktrain.protocol.memory_transport import MemoryDialer, MemoryTransport
from sparktrain.protocol.transport import Dialer, Limits, Listener
from sparktrain.testing.contracts import TransportContract
from sparktrain.testing.transports import TransportHarness


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
