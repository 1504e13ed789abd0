"""A client that drops every inbound connection trains on a Spark Connect server on other hosts, and may die."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import sparktrain as st
from tests.support.far_cluster import FarCluster, far_cluster
from tests.support.processes import Sighted, wait_until

STARTS_S = 120.0
ENDS_S = 90.0
SQUARES = {"status": "succeeded", "metrics": [{"y": 0.0}, {"y": 1.0}]}

pytestmark = [
    pytest.mark.all(
        case="a client behind a firewall trains on a Connect server on other hosts; it and an executor are killed",
        covered_by="`process/test_cluster_coordinator`: agents of this machine",
    ),
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        os.getuid() != 0 or shutil.which("ip") is None or shutil.which("nft") is None,
        reason="hosts need root and the commands ip and nft",
    ),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarCluster]:
    with far_cluster(tmp_path_factory.mktemp("far")) as far:
        yield far


def line(cluster: FarCluster, folder: Path, coordinator: str) -> list[str]:
    return [
        sys.executable, "-m", "tests.spark.far_client",
        cluster.url, cluster.runs, str(folder), cluster.client.address, coordinator,
    ]  # fmt: skip


def started(folder: Path) -> list[int]:
    """The processes of the trials that have started."""
    return [int(path.name.rpartition("-")[2]) for path in folder.glob("start-*")]


def test_a_sweep_from_a_client_that_nothing_can_connect_to(cluster: FarCluster, tmp_path: Path) -> None:
    before = cluster.refused()
    client = cluster.start_client(line(cluster, tmp_path, "auto"), tmp_path / "log")
    assert client.wait(STARTS_S) == 0, (tmp_path / "log").read_text()
    printed = (tmp_path / "log").read_text().splitlines()
    assert json.loads(printed[-1]) == SQUARES
    assert any("the coordinator runs in the cluster: executors such as" in text for text in printed)
    # The question whether executors reach the client is all that ever tries.
    tried = cluster.refused() - before
    assert 0 < tried <= 10


def test_a_run_outlives_its_client_and_its_coordinator(cluster: FarCluster, tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    before = cluster.refused()
    client = cluster.start_client(line(cluster, tmp_path, "cluster"), tmp_path / "log")
    wait_until(lambda: len(started(tmp_path)) == 2, STARTS_S, "both trials train")
    assert cluster.refused() == before, "no host has tried to connect to the client"
    client.kill()
    client.wait()
    [coordinator] = [
        process for process in psutil.process_iter(["cmdline", "cwd"])
        if "sparktrain.driver.clustered" in (process.info["cmdline"] or ())
        and any(parent.name() == "java" for parent in process.parents())
    ]  # fmt: skip
    # The whole executor, as a lost node does.
    executor = next(parent for parent in coordinator.parents() if parent.name() == "java")
    executor.kill()
    Sighted([coordinator.pid]).wait_gone(STARTS_S)
    (tmp_path / "hold").unlink()
    result = st.attach(f"{cluster.runs}/{tmp_path.name}").result(ENDS_S, progress=False)
    assert {"status": result.status, "metrics": [trial.metrics for trial in result.trials]} == SQUARES
