"""The gRPC transport against the contract."""

import pytest

from tests.support.transport_contract import TransportContract
from tests.support.transports import GrpcHarness, TransportHarness


class TestGrpcTransport(TransportContract):
    @pytest.fixture
    def harness(self, grpc_harness: GrpcHarness) -> TransportHarness:
        return grpc_harness
