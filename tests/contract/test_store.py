"""The stores of this package against the contract."""

import multiprocessing.dummy
from pathlib import Path
from uuid import uuid4

import pytest

from sparktrain.config.store_address import StoreAddress
from sparktrain.store.base import Store
from sparktrain.store.localfs import LocalStore
from sparktrain.store.url import open_store
from sparktrain.testing.store_contract import SharedStoreContract, StoreContract


class TestLocalStore(SharedStoreContract):
    rounds = 200

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path / "not" / "there yet")


@pytest.mark.usefixtures("aws")
class TestS3(SharedStoreContract):
    @pytest.fixture
    def store(self, s3_server: str) -> Store:
        settings = {"endpoint": s3_server, "region": "us-east-1"}
        return open_store(StoreAddress(f"s3://runs/{uuid4().hex}", settings, timeout_s=30))


class TestMemory(StoreContract):
    contest = multiprocessing.dummy

    @pytest.fixture
    def store(self) -> Store:
        return open_store(f"memory://{uuid4().hex}/runs")
