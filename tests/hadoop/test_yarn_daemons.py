"""The YARN of this ring: it starts fast, breaks as it is told, and leaves nothing."""

from pathlib import Path

import psutil
import pytest

from sparktrain.clock import SystemClock
from sparktrain.testing.hadoop import LABEL, HadoopError, Hdfs, Knobs, Yarn, yarn
from sparktrain.testing.processes import Sighted, wait_until

LOST_S = 20.0


def state_of(cluster: Yarn, nodemanager: int) -> str:
    name = cluster.node_of(cluster.nodemanagers[nodemanager])
    return next(str(each["state"]) for each in cluster.nodes() if each["id"] == name)


def test_a_cluster_is_ready_within_30_s_with_its_label_and_leaves_no_process(
    hdfs_cluster: Hdfs, tmp_path: Path
) -> None:
    begun = SystemClock().now()
    knobs = Knobs(keep_containers=True, keep_applications=False, preempt=True)
    settings = {"yarn.nodemanager.resource.memory-mb": "1024"}
    with yarn(tmp_path / "yarn", hdfs_cluster, knobs, settings) as cluster:
        took_s = SystemClock().now() - begun
        processes = Sighted(each.pid for each in cluster.daemons)
        labels = {each["id"]: each.get("nodeLabels", []) for each in cluster.nodes()}
        memory = [each["availMemoryMB"] for each in cluster.nodes()]
        assert labels == {cluster.node_of(cluster.nodemanagers[0]): [], cluster.labelled_node: [LABEL]}
        assert memory == [1024, 1024]
        with pytest.raises(HadoopError, match="GET apps/application_1_0001: 404 "):
            cluster.application("application_1_0001")

    assert took_s < 30.0, f"ready after {took_s:.1f} s"
    assert not processes.alive()
    assert not [line for each in psutil.process_iter(["cmdline"]) if str(tmp_path) in (line := str(each.info))]


def test_a_killed_nodemanager_is_lost_and_comes_back_with_its_label(breakable_yarn: Yarn) -> None:
    breakable_yarn.nodemanagers[1].kill9()
    wait_until(lambda: state_of(breakable_yarn, 1) == "LOST", LOST_S, "the NodeManager is lost")
    assert state_of(breakable_yarn, 0) == "RUNNING"

    breakable_yarn.mend()
    assert state_of(breakable_yarn, 1) == "RUNNING"


def test_a_killed_resourcemanager_comes_back_with_all_that_it_knew(breakable_yarn: Yarn) -> None:
    breakable_yarn.resourcemanager.kill9()
    with pytest.raises(HadoopError, match="the ResourceManager does not answer"):
        breakable_yarn.nodes()

    breakable_yarn.mend()
    labels = {each["id"]: each.get("nodeLabels") for each in breakable_yarn.nodes()}
    assert labels[breakable_yarn.labelled_node] == [LABEL]
