"""The clusters that the tests of this ring use: they start fast, break on request, and leave nothing."""

import getpass
import json
import socket
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import psutil
import pytest

from sparktrain.base.clock import SystemClock
from tests.hadoop.conftest import StartHdfs
from tests.support.daemons import DaemonError
from tests.support.hadoop import HaHdfs, Hdfs, JarsMissingError
from tests.support.hadoop.ports import Ports
from tests.support.processes import Sighted, kill, wait_until

pytestmark = pytest.mark.rig

ANSWER_S = 30.0
WITHOUT_PROXY = build_opener(ProxyHandler({}))


def ask(request: Request | str, timeout_s: float = ANSWER_S, tries: int = 3) -> bytes:
    """What WebHDFS answers; AssertionError, with its reason, when it refuses."""
    try:
        with WITHOUT_PROXY.open(request, timeout=timeout_s) as answer:
            return bytes(answer.read())
    except HTTPError as error:
        reason = error.read().decode()
    # A DataNode that serves WebHDFS finds out at its next call that the NameNode to which it was connected was killed.
    if "EOFException" in reason and tries > 1:
        return ask(request, timeout_s, tries - 1)
    raise AssertionError(reason)


def put(cluster: Hdfs, path: str, data: bytes) -> None:
    """Write a new file, by WebHDFS."""
    url = f"{cluster.webhdfs_url}/webhdfs/v1{path}?op=CREATE&noredirect=true&user.name={getpass.getuser()}"
    place = json.loads(ask(Request(url, method="PUT")))["Location"]
    ask(Request(place, data, method="PUT"))


def read(cluster: Hdfs, path: str, timeout_s: float = ANSWER_S) -> bytes:
    """The content of a file, by WebHDFS."""
    return ask(f"{cluster.webhdfs_url}/webhdfs/v1{path}?op=OPEN", timeout_s)


def below(folder: Path) -> list[str]:
    """The command lines of processes that name something below `folder`."""
    lines = (" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"]))
    return [line[-300:] for line in lines if str(folder) in line]


def port_of(url: str) -> int:
    return urlsplit(url).port or 0


def test_a_cluster_is_ready_within_20_s_as_it_was_set_and_leaves_no_process_and_no_port(
    start_hdfs: StartHdfs, tmp_path: Path
) -> None:
    started_at = SystemClock().now()
    cluster = start_hdfs(settings={"dfs.namenode.fs-limits.min-block-size": "2048"})
    took_s = SystemClock().now() - started_at
    processes = Sighted(each.pid for each in cluster.daemons)
    assert len(processes.alive()) == 3
    with pytest.raises(DaemonError, match="less than configured minimum value"):
        cluster.cli("-D", "dfs.blocksize=1024", "-put", "-", "/tiny", stdin="words")

    cluster.close()

    assert took_s < 20.0, f"ready after {took_s:.1f} s"
    assert not processes.alive()
    assert not below(tmp_path)
    for url in (cluster.url, cluster.webhdfs_url):
        socket.create_server(("127.0.0.1", port_of(url))).close()


def test_a_cluster_that_is_interrupted_while_it_starts_leaves_no_process(tmp_path: Path) -> None:
    class Interrupted(Hdfs):
        def wait_ready(self, timeout_s: float = 0.0) -> float:
            # The command line of a process is empty for a moment while it executes its program.
            wait_until(lambda: len(below(tmp_path)) == 2, 10.0, "NameNode and DataNode run")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Interrupted(tmp_path, datanodes=1):
        pass

    assert not below(tmp_path)


def test_daemons_end_when_the_process_that_started_them_is_killed(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from tests.support.hadoop import Hdfs
cluster = Hdfs(Path({str(tmp_path)!r}), datanodes=1)
cluster.wait_ready = lambda: None
cluster.start()
print(*(each.pid for each in cluster.daemons), flush=True)
input()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        daemons = Sighted(map(int, starter.stdout.readline().split()))
        assert len(daemons.alive()) == 2
        kill(starter.pid)

    assert daemons.wait_gone(5.0) < 5.0


def test_what_was_written_outlives_a_killed_namenode(breakable_hdfs: Hdfs) -> None:
    put(breakable_hdfs, "/kept", b"words")

    breakable_hdfs.namenode.kill9()
    assert not breakable_hdfs.namenode.is_alive()
    breakable_hdfs.namenode.start()
    breakable_hdfs.wait_ready()

    assert read(breakable_hdfs, "/kept") == b"words"


def test_a_paused_namenode_answers_when_it_wakes(breakable_hdfs: Hdfs) -> None:
    put(breakable_hdfs, "/paused", b"words")

    breakable_hdfs.namenode.pause()
    with pytest.raises(TimeoutError):
        read(breakable_hdfs, "/paused", timeout_s=0.5)
    assert breakable_hdfs.namenode.is_alive()
    breakable_hdfs.namenode.wake()

    assert read(breakable_hdfs, "/paused") == b"words"


def test_each_datanode_keeps_a_block_and_one_is_enough_to_read_it(breakable_hdfs: Hdfs) -> None:
    put(breakable_hdfs, "/block", b"content of one block")
    blocks = [breakable_hdfs.block_files(number)[-1] for number in range(2)]
    assert [block.read_bytes() for block in blocks] == [b"content of one block"] * 2

    breakable_hdfs.datanodes[0].kill9()
    assert breakable_hdfs.cli("-cat", "/block") == "content of one block"

    breakable_hdfs.datanodes[0].start()
    breakable_hdfs.wait_ready()
    assert read(breakable_hdfs, "/block") == b"content of one block"


def test_safe_mode_refuses_writes_until_it_is_repaired(breakable_hdfs: Hdfs) -> None:
    breakable_hdfs.admin("-safemode", "enter")
    with pytest.raises(DaemonError, match=r"(?s)^FsShell -mkdir /refused ended with .*Name node is in safe mode"):
        breakable_hdfs.cli("-mkdir", "/refused")

    breakable_hdfs.repair()
    put(breakable_hdfs, "/accepted", b"")


def test_a_full_quota_refuses_to_write(hdfs_cluster: Hdfs) -> None:
    hdfs_cluster.cli("-mkdir", "/small")
    hdfs_cluster.admin("-setSpaceQuota", "1m", "/small")

    with pytest.raises(DaemonError, match="The DiskSpace quota of /small is exceeded"):
        hdfs_cluster.cli("-put", "-", "/small/large", stdin="words")


def test_clients_find_the_namenode_that_has_become_active(ha_cluster: HaHdfs) -> None:
    first = ha_cluster.namenode
    ha_cluster.cli("-put", "-", f"{ha_cluster.url}/moved", stdin="words")

    ha_cluster.failover()

    assert ha_cluster.namenode is not first
    assert ha_cluster.cli("-cat", f"{ha_cluster.url}/moved") == "words"


def test_a_namenode_is_promoted_when_the_other_is_dead_and_only_then(ha_cluster: HaHdfs) -> None:
    ha_cluster.cli("-put", "-", "/left", stdin="words")
    active = ha_cluster.namenode
    other = 1 - ha_cluster.namenodes.index(active)
    with pytest.raises(DaemonError, match=f"{active.name} lives: kill it first"):
        ha_cluster.promote(other)

    active.kill9()
    with pytest.raises(DaemonError, match=r"no NameNode .* is active"):
        ha_cluster.namenode.check()
    ha_cluster.promote(other)
    assert ha_cluster.cli("-cat", "/left") == "words"

    ha_cluster.repair()
    assert ha_cluster.namenode is ha_cluster.namenodes[other]
    assert active.is_alive()


def test_a_namenode_that_cannot_start_shows_its_last_lines(breakable_hdfs: Hdfs) -> None:
    breakable_hdfs.namenode.kill9()
    with socket.create_server(("127.0.0.1", port_of(breakable_hdfs.url))):
        breakable_hdfs.namenode.start()
        with pytest.raises(DaemonError, match=r"(?s)^namenode ended with status 1; its last lines:.*in use"):
            breakable_hdfs.wait_ready()


def test_without_the_jars_the_error_explains_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(JarsMissingError, match="run `make hadoop`"):
        Hdfs(tmp_path).start()


def test_a_port_is_given_to_one_alone_and_not_to_clients() -> None:
    one, other = Ports(), Ports()
    ports = [each.take() for each in (one, other) for _ in range(50)]
    one.close()
    other.close()

    assert len(set(ports)) == 100
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not set(ports) & set(range(first, last + 1))
