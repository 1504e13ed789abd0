"""Checkpoints in the stores of this package."""

from pathlib import Path
from uuid import uuid4

import pytest

from sparktrain.config.store_address import StoreAddress
from sparktrain.store.base import Store
from sparktrain.store.localfs import LocalStore
from sparktrain.store.url import open_store
from tests.contract.checkpoint_contract import BREAKS, CheckpointContract
from tests.unit.store.gated import MemoryStore


class TestInADirectory(CheckpointContract):
    stride = 3

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path / "runs")


@pytest.mark.usefixtures("aws")
class TestInS3(CheckpointContract):
    stride = 29
    breaks = BREAKS[::3]

    @pytest.fixture
    def store(self, s3_server: str) -> Store:
        settings = {"endpoint": s3_server, "region": "us-east-1"}
        return open_store(StoreAddress(f"s3://runs/{uuid4().hex}", settings, timeout_s=30))


@pytest.mark.all(
    case="a fault at each third operation of a checkpoint in S3",
    covered_by="a crash before and a fault after each twenty-ninth; all at each one in memory",
)
class TestInS3Often(TestInS3):
    stride = 3
    breaks = BREAKS


@pytest.mark.all(
    case="a fault at each operation of a checkpoint in a directory",
    covered_by="at each third; at each one in memory",
)
class TestInADirectoryOften(TestInADirectory):
    stride = 1


class TestInMemory(CheckpointContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()
