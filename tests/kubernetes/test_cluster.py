"""The cluster that the tests of this ring use: its nodes, their pods and GPUs, and what it refuses."""

import sys
from urllib.request import ProxyHandler, build_opener

import pytest

from tests.support.kubernetes import GPU, Api, ApiError, Kubernetes

pytestmark = pytest.mark.kubernetes

PORT = 8000


def test_all_nodes_are_ready_with_their_labels(kubernetes: Kubernetes) -> None:
    assert kubernetes.wait_ready() < 1
    nodes = {node["metadata"]["name"]: node for node in kubernetes.api.items("/api/v1/nodes")}
    assert set(nodes) == {"node-a", "node-b"}
    for node in nodes.values():
        assert node["metadata"]["labels"]["accelerator"] == "gpu"
        assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.36.3"
        assert node["status"]["allocatable"][GPU] == "2"


def test_a_pod_reaches_a_pod_on_another_node_and_so_does_this_machine(kubernetes: Kubernetes) -> None:
    folder = kubernetes.shared / "served"
    folder.mkdir()
    (folder / "greeting").write_text("from node-a")
    serve = (sys.executable, "-m", "http.server", str(PORT), "--directory", str(folder))
    ready = {"httpGet": {"path": "/greeting", "port": PORT}, "periodSeconds": 1}
    kubernetes.run_pod("server", *serve, nodeName="node-a", container={"startupProbe": ready})
    try:
        kubernetes.wait_started("server")
        url = f"http://{kubernetes.pod('server')['status']['podIP']}:{PORT}/greeting"
        read = f"from urllib.request import *; print(build_opener(ProxyHandler({{}})).open({url!r}, timeout=10).read())"
        kubernetes.run_pod("client", sys.executable, "-c", read, nodeName="node-b")
        assert kubernetes.wait_pod("client") == "Succeeded"
        assert kubernetes.logs("client") == "b'from node-a'\n"
        assert build_opener(ProxyHandler({})).open(url, timeout=10).read() == b"from node-a"
    finally:
        kubernetes.delete_pod("server", grace_s=0)
        kubernetes.delete_pod("client", grace_s=0)


def test_a_pod_gets_the_files_of_the_gpus_that_it_asks_for(kubernetes: Kubernetes) -> None:
    show = 'echo "$NVIDIA_VISIBLE_DEVICES"; cat /dev/nvidia*'
    gpus = {"resources": {"limits": {GPU: "2"}}}
    kubernetes.run_pod("trains", "sh", "-c", show, nodeName="node-b", container=gpus)
    try:
        assert kubernetes.wait_pod("trains") == "Succeeded"
        names, *devices = kubernetes.logs("trains").splitlines()
        assert sorted(names.split(",")) == ["nvidia0", "nvidia1"]
        assert devices == ["GPU 0 of node-b", "GPU 1 of node-b"]
    finally:
        kubernetes.delete_pod("trains", grace_s=0)


def test_a_pod_that_asks_for_more_gpus_than_a_node_has_is_not_scheduled(kubernetes: Kubernetes) -> None:
    kubernetes.run_pod("greedy", "true", container={"resources": {"limits": {GPU: "3"}}})
    try:
        condition = kubernetes.wait_condition("greedy", "PodScheduled", "False")
        assert condition["reason"] == "Unschedulable"
        assert f"2 Insufficient {GPU}" in condition["message"]
    finally:
        kubernetes.delete_pod("greedy", grace_s=0)


def test_the_quota_of_a_namespace_refuses_a_pod(kubernetes: Kubernetes) -> None:
    kubernetes.add_namespace("small", {"pods": "1"})
    kubernetes.run_pod("first", "sleep", "60", namespace="small")
    try:
        with pytest.raises(ApiError, match=r"exceeded quota: quota, requested: pods=1, used: pods=1, limited: pods=1"):
            kubernetes.run_pod("second", "true", namespace="small")
    finally:
        kubernetes.delete_pod("first", grace_s=0, namespace="small")


def test_the_service_account_has_the_rights_of_its_role_alone(kubernetes: Kubernetes) -> None:
    account = Api(kubernetes.plane.url, kubernetes.token(), kubernetes.plane.certificate)
    assert account.items("/api/v1/namespaces/training/pods") == []
    for path in ("/api/v1/namespaces/training/secrets", "/api/v1/namespaces/default/pods", "/api/v1/nodes"):
        with pytest.raises(ApiError, match="forbidden") as refused:
            account.get(path)
        assert refused.value.status == 403


def test_kubectl_runs_commands_in_a_pod(kubernetes: Kubernetes) -> None:
    kubernetes.run_pod("open", "sleep", "60")
    try:
        kubernetes.wait_pod("open", "Running")
        printed = kubernetes.kubectl("exec", "open", "--namespace=training", "--", sys.executable, "-c", "print(6 * 7)")
        assert printed == "42\n"
    finally:
        kubernetes.delete_pod("open", grace_s=0)
