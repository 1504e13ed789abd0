"""The YARN of this ring: it starts fast, breaks on request, and leaves nothing."""

from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from sparktrain.base.clock import SystemClock
from sparktrain.cluster.yarn_capacity import demand_of, outlook, refusal
from sparktrain.cluster.yarn_client import ResourceManager
from tests.conf import properties, queues
from tests.support.daemons import DaemonError
from tests.support.hadoop import LABEL, Hdfs, Knobs, Yarn, yarn
from tests.support.processes import Sighted, wait_until

pytestmark = pytest.mark.rig

LOST_S = 20.0


def state_of(cluster: Yarn, nodemanager: int) -> str:
    name = cluster.node_of(cluster.nodemanagers[nodemanager])
    return next(str(each["state"]) for each in cluster.nodes() if each["id"] == name)


def test_a_cluster_is_ready_within_30_s_with_its_label_and_leaves_no_process(
    hdfs_cluster: Hdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the queues of conf/, on nodes that are as large as its properties want them."""
    started_at = SystemClock().now()
    knobs = Knobs(keep_containers=True, keep_applications=False, preempt=True, gpus=4)
    settings = {
        "yarn.nodemanager.resource.memory-mb": "65536",
        "yarn.nodemanager.resource.cpu-vcores": "16",
        "yarn.scheduler.maximum-allocation-mb": "65536",
    }
    with yarn(tmp_path / "yarn", hdfs_cluster, knobs, settings, queues()) as cluster:
        took_s = SystemClock().now() - started_at
        processes = Sighted(each.pid for each in cluster.daemons)
        labels = {each["id"]: each.get("nodeLabels", []) for each in cluster.nodes()}
        memory = [each["availMemoryMB"] for each in cluster.nodes()]
        assert labels == {cluster.node_of(cluster.nodemanagers[0]): [], cluster.labelled_node: [LABEL]}
        assert memory == [65536, 65536]
        with pytest.raises(DaemonError, match="GET apps/application_1_0001: 404 "):
            cluster.application("application_1_0001")
        monkeypatch.setenv("HADOOP_CONF_DIR", str(cluster.conf))
        check_queues()

    assert took_s < 30.0, f"ready after {took_s:.1f} s"
    assert not processes.alive()
    assert not [line for each in psutil.process_iter(["cmdline"]) if str(tmp_path) in (line := str(each.info))]


def check_queues() -> None:
    """The label is for the queue gpu alone, which has room for what conf/yarn-gpu.conf asks for."""
    status = ResourceManager.configured().status()
    assert status is not None
    gpu, cpu = demand_of(properties("yarn-gpu.conf")), demand_of(properties("yarn-cpu.conf"))
    assert outlook(gpu, 4, status) == outlook(cpu, 8, status) == ""
    assert outlook(gpu, 5, status) == (
        "4 of 5 executors fit nodes with label gpu in queue gpu now; capacity 4 x (16384 MB, 4 cores, 1 GPU)"
    )
    assert refusal(replace(gpu, queue="default"), status).startswith("queue default may not use label gpu")
    assert refusal(replace(cpu, label="gpu"), status).startswith("queue default may not use label gpu")


def test_a_killed_nodemanager_is_lost_and_comes_back_with_its_label(breakable_yarn: Yarn) -> None:
    breakable_yarn.nodemanagers[1].kill9()
    wait_until(lambda: state_of(breakable_yarn, 1) == "LOST", LOST_S, "the NodeManager is lost")
    assert state_of(breakable_yarn, 0) == "RUNNING"

    breakable_yarn.repair()
    assert state_of(breakable_yarn, 1) == "RUNNING"


def test_a_node_that_is_taken_out_of_service_comes_back_with_its_label(breakable_yarn: Yarn) -> None:
    [other, node] = breakable_yarn.nodemanagers
    breakable_yarn.decommission(node)
    assert state_of(breakable_yarn, 1) == "DECOMMISSIONED"
    wait_until(lambda: not node.is_alive(), LOST_S, "its NodeManager has ended")
    assert (other.is_alive(), state_of(breakable_yarn, 0)) == (True, "RUNNING")

    breakable_yarn.repair()
    assert state_of(breakable_yarn, 1) == "RUNNING"


def test_a_killed_resourcemanager_comes_back_with_all_that_it_knew(breakable_yarn: Yarn) -> None:
    breakable_yarn.resourcemanager.kill9()
    with pytest.raises(DaemonError, match="the ResourceManager does not answer"):
        breakable_yarn.nodes()

    breakable_yarn.repair()
    labels = {each["id"]: each.get("nodeLabels") for each in breakable_yarn.nodes()}
    assert labels[breakable_yarn.labelled_node] == [LABEL]
