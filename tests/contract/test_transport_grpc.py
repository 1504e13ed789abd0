"""The gRPC transport against the contract."""

import pytest

from sparktrain.testing.contracts import TransportContract
from sparktrain.testing.transports import GrpcHarness, TransportHarness


class TestGrpcTransport(TransportContract):
    @pytest.fixture
    def harness(self, grpc_harness: GrpcHarness) -> TransportHarness:
        return grpc_harness
