"""Checkpoints in a real HDFS with operations that fail."""

from pathlib import Path

import pytest

from sparktrain.config.store_address import StoreAddress
from sparktrain.store.base import Store
from sparktrain.store.hadoop.hdfs import HdfsStore
from tests.contract.checkpoint_contract import CheckpointContract
from tests.support.hadoop import Hdfs

pytestmark = pytest.mark.timeout(300)


class TestInHdfs(CheckpointContract):
    stride = 29

    @pytest.fixture
    def store(self, hdfs_cluster: Hdfs, tmp_path: Path) -> Store:
        return HdfsStore.at(StoreAddress(f"{hdfs_cluster.url}{tmp_path}", timeout_s=30.0))


@pytest.mark.all(
    case="a fault at each third operation of a checkpoint in HDFS",
    covered_by="at each twenty-ninth; `contract/test_checkpoints`: at each one",
)
class TestInHdfsOften(TestInHdfs):
    stride = 3
