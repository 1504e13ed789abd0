"""Reports in HDFS, by both clients."""

from pathlib import Path

import pytest

from sparktrain.config.store_address import StoreAddress
from sparktrain.store.base import Store
from sparktrain.store.hadoop.hdfs import HdfsStore
from sparktrain.store.hadoop.webhdfs import WebHdfsStore
from tests.contract.metric_log_contract import MetricLogContract
from tests.support.hadoop import Hdfs

pytestmark = pytest.mark.timeout(300)


class TestReportsInHdfs(MetricLogContract):
    stride = 9

    @pytest.fixture
    def store(self, hdfs_cluster: Hdfs, tmp_path: Path) -> Store:
        return HdfsStore.at(StoreAddress(f"{hdfs_cluster.url}{tmp_path}", timeout_s=30.0))


@pytest.mark.all(
    case="a crash at each operation of appended reports in HDFS",
    covered_by="at each ninth; `contract/test_metric_log`: at each one",
)
class TestReportsInHdfsOften(TestReportsInHdfs):
    stride = 1


@pytest.mark.all(
    case="appended reports by WebHDFS",
    covered_by="by the native protocol; `contract/test_metric_log`: in S3 and in a directory; `hadoop/test_store`: "
    "each operation by WebHDFS",
)
class TestReportsByWebHdfs(MetricLogContract):
    @pytest.fixture
    def store(self, hdfs_cluster: Hdfs, tmp_path: Path) -> Store:
        url = hdfs_cluster.webhdfs_url.replace("http://", "webhdfs://")
        return WebHdfsStore.at(StoreAddress(f"{url}{tmp_path}", timeout_s=30.0))
