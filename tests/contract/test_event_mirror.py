"""Event files that grow, in the stores of this package."""

from pathlib import Path
from uuid import uuid4

import pytest

from sparktrain.config.store_address import StoreAddress
from sparktrain.store.base import Store
from sparktrain.store.localfs import LocalStore
from sparktrain.store.url import open_store
from tests.contract.event_mirror_contract import EventMirrorContract


class TestEventsInADirectory(EventMirrorContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path / "runs")


class TestEventsInMemory(EventMirrorContract):
    @pytest.fixture
    def store(self) -> Store:
        return open_store(f"memory://{uuid4().hex}/runs")


@pytest.mark.usefixtures("aws")
class TestEventsInS3(EventMirrorContract):
    @pytest.fixture
    def store(self, s3_server: str) -> Store:
        settings = {"endpoint": s3_server, "region": "us-east-1"}
        return open_store(StoreAddress(f"s3://runs/{uuid4().hex}", settings, timeout_s=30))
