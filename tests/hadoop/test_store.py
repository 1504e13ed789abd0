"""The stores in HDFS against the contract, on a real one."""

from pathlib import Path

import pytest

from sparktrain.config.store_address import StoreAddress
from sparktrain.store.base import Store
from sparktrain.store.hadoop.hdfs import HdfsStore
from sparktrain.store.hadoop.webhdfs import WebHdfsStore
from sparktrain.testing.hadoop import Hdfs
from sparktrain.testing.store_contract import SharedStoreContract


class TestHdfsStore(SharedStoreContract):
    rounds = 200

    @pytest.fixture
    def store(self, hdfs_cluster: Hdfs, tmp_path: Path) -> Store:
        return HdfsStore.at(StoreAddress(f"{hdfs_cluster.url}{tmp_path}/not/there yet", timeout_s=30.0))


class TestWebHdfsStore(SharedStoreContract):
    rounds = 200

    @pytest.fixture
    def store(self, hdfs_cluster: Hdfs, tmp_path: Path) -> Store:
        url = hdfs_cluster.webhdfs_url.replace("http://", "webhdfs://")
        return WebHdfsStore.at(StoreAddress(f"{url}{tmp_path}/not/there yet", timeout_s=30.0))
