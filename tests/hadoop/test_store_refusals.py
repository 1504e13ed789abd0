"""What stores in HDFS refuse, and what a probe reports."""

import socket
from pathlib import Path

import pytest

from sparktrain.errors import RunDirectoryError, StoreRefusedError
from sparktrain.store.url import open_store
from tests.hadoop.stores import PROTOCOLS, opened, within
from tests.support.hadoop import Hdfs

OTHER_PROTOCOL = pytest.mark.all(
    case="a full quota, and a probe in safe mode, by the other protocol",
    covered_by="a quota of space by the native protocol, a quota of names and safe mode by WebHDFS",
)

PROBE_S = 5.0

both = pytest.mark.parametrize("protocol", PROTOCOLS)


@both
def test_a_permission_is_missing(
    hdfs_cluster: Hdfs, protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert opened(hdfs_cluster, protocol, tmp_path).put_if_absent("a", b"1")
    monkeypatch.setenv("HADOOP_USER_NAME", "zoe")
    store = opened(hdfs_cluster, protocol, tmp_path)
    with within(PROBE_S), pytest.raises(StoreRefusedError, match="Permission denied: user=zoe, access=WRITE"):
        store.put_if_absent("b", b"2")
    with (
        within(PROBE_S),
        pytest.raises(RunDirectoryError, match=r"cannot be written by user zoe: Permission denied.*; choose another"),
    ):
        store.probe()


@both
def test_a_file_is_in_the_way(hdfs_cluster: Hdfs, protocol: str, tmp_path: Path) -> None:
    assert opened(hdfs_cluster, protocol, tmp_path).put_if_absent("run", b"1")
    store = opened(hdfs_cluster, protocol, tmp_path / "run")
    with within(PROBE_S), pytest.raises(RunDirectoryError, match=r"run \(is not a directory\); choose another"):
        store.probe()
    with pytest.raises(StoreRefusedError, match=f"{tmp_path}/run"):
        store.create("a").publish()


QUOTAS = {
    "space": (
        ["-setSpaceQuota", "1m"],
        r"The DiskSpace quota of /.* is exceeded: quota = 1048576 B = 1 MB but .* 256 MB",
    ),
    "names": (["-setQuota", "1"], r"The NameSpace quota .* of directory /.* is exceeded: quota=1 file count=2"),
}


@pytest.mark.parametrize(
    ("kind", "protocol"),
    [
        ("space", "hdfs"),
        ("names", "webhdfs"),
        pytest.param("space", "webhdfs", marks=OTHER_PROTOCOL),
        pytest.param("names", "hdfs", marks=OTHER_PROTOCOL),
    ],
)
def test_a_quota_is_full(hdfs_cluster: Hdfs, protocol: str, tmp_path: Path, kind: str) -> None:
    quota, expected = QUOTAS[kind]
    hdfs_cluster.cli("-mkdir", "-p", str(tmp_path))
    hdfs_cluster.admin(*quota, str(tmp_path))
    store = opened(hdfs_cluster, protocol, tmp_path)
    with within(PROBE_S), pytest.raises(StoreRefusedError, match=expected) as caught:
        store.put_if_absent("a", b"1")
    if "-setSpaceQuota" in quota:
        assert "charges a full block, 128 MiB unless set otherwise, times the replication" in str(caught.value)
    assert store.list() == []
    with within(PROBE_S), pytest.raises(RunDirectoryError, match=expected):
        store.probe()


@both
def test_a_name_that_hdfs_does_not_take(hdfs_cluster: Hdfs, protocol: str, tmp_path: Path) -> None:
    with pytest.raises(StoreRefusedError, match="without ':'"):
        opened(hdfs_cluster, protocol, tmp_path).put_if_absent("a:b", b"1")


@both
def test_nobody_listens(protocol: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    store = open_store(f"{protocol}://127.0.0.1:{port}/runs")
    with within(PROBE_S), pytest.raises(RunDirectoryError, match=r"onnection refused.*; see that its NameNode"):
        store.probe()


@pytest.mark.parametrize("protocol", ["webhdfs", pytest.param("hdfs", marks=OTHER_PROTOCOL)])
def test_a_probe_in_safe_mode(breakable_hdfs: Hdfs, protocol: str, tmp_path: Path) -> None:
    breakable_hdfs.admin("-safemode", "enter")
    with within(PROBE_S), pytest.raises(RunDirectoryError, match=r"its NameNode is in safe mode .*; wait until"):
        opened(breakable_hdfs, protocol, tmp_path).probe()
