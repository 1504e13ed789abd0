"""What the tests of the gRPC transport share."""

import pytest

from sparktrain.testing.transports import GrpcHarness


@pytest.fixture
def grpc_harness() -> GrpcHarness:
    """Both sides, with the timeouts of real runs."""
    return GrpcHarness()


@pytest.fixture
def quick_harness() -> GrpcHarness:
    """Both sides, where strangers and dead peers are noticed soon."""
    return GrpcHarness(handshake_s=0.5, dead_after_s=2)
