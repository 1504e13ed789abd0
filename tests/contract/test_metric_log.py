"""Reports in the stores of this package."""

from pathlib import Path
from uuid import uuid4

import pytest

from sparktrain.config.store_address import StoreAddress
from sparktrain.store.base import Store
from sparktrain.store.localfs import LocalStore
from sparktrain.store.url import open_store
from tests.contract.metric_log_contract import MetricLogContract


class TestReportsInADirectory(MetricLogContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path / "runs")


class TestReportsInMemory(MetricLogContract):
    @pytest.fixture
    def store(self) -> Store:
        return open_store(f"memory://{uuid4().hex}/runs")


@pytest.mark.usefixtures("aws")
class TestReportsInS3(MetricLogContract):
    stride = 3

    @pytest.fixture
    def store(self, s3_server: str) -> Store:
        settings = {"endpoint": s3_server, "region": "us-east-1"}
        return open_store(StoreAddress(f"s3://runs/{uuid4().hex}", settings, timeout_s=30))


@pytest.mark.all(
    case="a crash at each operation of appended reports in S3",
    covered_by="at each third; at each one in memory and in a directory",
)
class TestReportsInS3Often(TestReportsInS3):
    stride = 1
