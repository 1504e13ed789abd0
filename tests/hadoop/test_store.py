"""The stores in HDFS against the contract, on a real one."""

from pathlib import Path

import pytest

from sparktrain.config.store_address import StoreAddress
from sparktrain.store.base import Store
from sparktrain.store.hadoop.hdfs import HdfsStore
from sparktrain.store.hadoop.webhdfs import WebHdfsStore
from sparktrain.store.url import open_store
from sparktrain.testing.store_contract import RaceContract, SharedStoreContract
from tests.hadoop.stores import PROTOCOLS, url
from tests.support.hadoop import Hdfs


class TestHdfsStore(SharedStoreContract):
    @pytest.fixture
    def store(self, hdfs_cluster: Hdfs, tmp_path: Path) -> Store:
        return HdfsStore.at(StoreAddress(f"{hdfs_cluster.url}{tmp_path}/not/there yet", timeout_s=30.0))


class TestWebHdfsStore(SharedStoreContract):
    @pytest.fixture
    def store(self, hdfs_cluster: Hdfs, tmp_path: Path) -> Store:
        return WebHdfsStore.at(StoreAddress(url(hdfs_cluster, "webhdfs", f"{tmp_path}/not/there yet"), timeout_s=30.0))


@pytest.mark.all(case="four processes race for 200 files", covered_by="for 20 files, by both protocols")
class TestManyRounds(RaceContract):
    """The race of the contract, ten times as long."""

    rounds = 200

    @pytest.fixture(params=PROTOCOLS)
    def store(self, hdfs_cluster: Hdfs, tmp_path: Path, request: pytest.FixtureRequest) -> Store:
        return open_store(StoreAddress(url(hdfs_cluster, request.param, tmp_path), timeout_s=30.0))
