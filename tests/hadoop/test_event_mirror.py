"""Event files that grow, in HDFS, by both clients."""

from pathlib import Path

import pytest

from sparktrain.config.store_address import StoreAddress
from sparktrain.store.base import Store
from sparktrain.store.hadoop.hdfs import HdfsStore
from sparktrain.store.hadoop.webhdfs import WebHdfsStore
from tests.contract.event_mirror_contract import EventMirrorContract
from tests.support.hadoop import Hdfs

pytestmark = pytest.mark.timeout(300)


class TestEventsInHdfs(EventMirrorContract):
    @pytest.fixture
    def store(self, hdfs_cluster: Hdfs, tmp_path: Path) -> Store:
        return HdfsStore.at(StoreAddress(f"{hdfs_cluster.url}{tmp_path}", timeout_s=30.0))


@pytest.mark.all(
    case="event files that grow, by WebHDFS",
    covered_by="by the native protocol; `contract/test_event_mirror`: in S3 and in a directory",
)
class TestEventsByWebHdfs(EventMirrorContract):
    @pytest.fixture
    def store(self, hdfs_cluster: Hdfs, tmp_path: Path) -> Store:
        url = hdfs_cluster.webhdfs_url.replace("http://", "webhdfs://")
        return WebHdfsStore.at(StoreAddress(f"{url}{tmp_path}", timeout_s=30.0))
