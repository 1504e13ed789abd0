"""What the clients of HDFS make hard: other hosts, odd names, and files that another client has left open."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from sparktrain.store.url import open_store
from tests.hadoop.stores import PROTOCOLS, opened, url
from tests.support.hadoop import Hdfs

EXECUTOR = """
import sys
import msgspec
from sparktrain.config.store_address import StoreAddress
from sparktrain.store.url import open_store
store = open_store(msgspec.json.decode(sys.stdin.read(), type=StoreAddress))
assert store.read("by driver") == b"1"
assert store.put_if_absent("by executor", b"2")
"""
APPENDING = """
import sys
from hdfs_native import Client
file = Client(sys.argv[1], {}).append(sys.argv[2])
file.write(b"half a line")
file.hsync()
print("appended", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("scheme", ["hdfs", "webhdfs"])
def test_an_executor_needs_no_configuration_and_writes_as_the_driver(
    scheme: str, hdfs_cluster: Hdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hdfs_cluster.cli("-mkdir", "-p", str(tmp_path))
    hdfs_cluster.cli("-chmod", "777", str(tmp_path))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hdfs_cluster.conf))
    monkeypatch.setenv("HADOOP_USER_NAME", "ann")
    store = open_store(f"hdfs://{tmp_path}" if scheme == "hdfs" else url(hdfs_cluster, scheme, tmp_path))
    assert store.put_if_absent("by driver", b"1")
    address = msgspec.json.encode(store.address).decode()
    bare = {name: value for name, value in os.environ.items() if not name.startswith("HADOOP")}
    subprocess.run([sys.executable, "-c", EXECUTOR], input=address, text=True, env=bare, check=True, timeout=60)
    assert store.read("by executor") == b"2"
    listed = hdfs_cluster.cli("-ls", str(tmp_path)).splitlines()
    assert [line.split()[2] for line in listed if "by " in line] == ["ann", "ann"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_names_are_what_they_are(protocol: str, hdfs_cluster: Hdfs, tmp_path: Path) -> None:
    names = ["a b", "per%20cent", "ha#sh", "x#LATEST", "qu?st", "ünï", "plus+", "st*r", "{a,b}[c]", "a;b", "a=b&c", "'"]
    store = opened(hdfs_cluster, protocol, tmp_path)
    for name in names:
        assert store.put_if_absent(f"in/{name}", name.encode())
    assert store.list("in") == sorted(f"in/{name}" for name in names)
    assert [store.read(f"in/{name}") for name in names] == [name.encode() for name in names]
    for name in names:
        store.delete(f"in/{name}")
    assert store.list() == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_log_whose_writer_died_in_an_append_can_be_read(protocol: str, hdfs_cluster: Hdfs, tmp_path: Path) -> None:
    """The native library reads nothing of a block that is still open, not even what was there before the append."""
    store = opened(hdfs_cluster, protocol, tmp_path, call_s=20.0)
    log = store.open_stream("log")
    log.write(b"whole lines\n")
    log.close()
    appending = subprocess.Popen(
        [sys.executable, "-c", APPENDING, hdfs_cluster.url, f"{tmp_path}/log"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with appending:
        assert appending.stdout is not None
        assert appending.stdout.readline() == b"appended\n"
        appending.kill()
    assert store.read("log") == b"whole lines\nhalf a line"
