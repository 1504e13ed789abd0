"""Fixtures of the gRPC transport's tests, and an S3 for those of stores."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.object_storage import s3_server
from tests.support.transports import GrpcHarness


@pytest.fixture
def grpc_harness() -> GrpcHarness:
    """Both sides, with the timeouts of real runs."""
    return GrpcHarness()


@pytest.fixture
def quick_harness() -> GrpcHarness:
    """Both sides, with short timeouts for strangers and dead peers."""
    return GrpcHarness(handshake_s=0.5, dead_after_s=2)


@pytest.fixture(scope="session", name="s3_server")
def shared_s3_server() -> Iterator[str]:
    """The endpoint of an S3 with a bucket `runs`, in a process that ends with the tests."""
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials that every process of the test finds, and no others."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing-secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
