"""Why pods of an application were lost, in the words of the call that continues elsewhere."""

import json
from pathlib import Path

import pytest

from sparktrain.training.data.open_data import STORAGE_KEY
from tests.support.kubernetes import GPU, NAMESPACE, Kubernetes, fast_conf, submission
from tests.support.processes import wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

PROGRAM = Path(__file__).with_name("pod_losses.py")
END_S = 200.0


def test_a_call_reports_why_it_has_lost_pods(kubernetes: Kubernetes) -> None:
    """One pod is evicted by a drain, the next one preempted, and one writes too much."""
    folder = kubernetes.shared / "lost"
    folder.mkdir()
    folder.chmod(0o777)
    with submission(kubernetes, PROGRAM, str(folder), conf=limited(kubernetes)) as submitted:
        node = str(kubernetes.pod(next_pod(folder))["spec"]["nodeName"])
        kubernetes.kubectl("drain", node, "--force", "--delete-emptydir-data", "--pod-selector=spark-role=executor")
        pod = next_pod(folder)
        kubernetes.kubectl("uncordon", node)
        preempt(kubernetes, str(kubernetes.pod(pod)["spec"]["nodeName"]))
        pod = next_pod(folder)
        kubernetes.delete_pod("urgent", grace_s=0)
        shown = kubernetes.kubectl("exec", pod, f"--namespace={NAMESPACE}", "--", "printenv", STORAGE_KEY)
        assert int(shown) == 30 * 2**20, "what the cache of data takes its share of"
        # The kubelet measures this layer of the container more often than volumes.
        write = ("dd", "if=/dev/zero", "of=/tmp/file", "bs=1M", "count=60")
        kubernetes.kubectl("exec", pod, f"--namespace={NAMESPACE}", "--", *write)
        next_pod(folder)
        (folder / "done").touch()
        assert submitted.wait(END_S) == 0, submitted.output
    drained, preempted, evicted = json.loads((folder / "reported.json").read_text())
    assert drained[0] == preempted[0] == "announced", "by SIGTERM, which the executor gets first"
    assert "its pod was evicted on request, as `kubectl drain` does" in drained[1]
    assert "a pod of higher priority preempted its pod" in preempted[1]
    assert evicted[0] == "storage"
    assert "Pod ephemeral local storage usage exceeds the total limit of containers 30Mi" in evicted[1]
    assert "YARN" not in drained[1] + preempted[1] + evicted[1]


def limited(kubernetes: Kubernetes) -> dict[str, str]:
    """Settings of one executor with all GPUs of a node and a little local storage."""
    key = "spark.kubernetes.executor.podTemplateFile"
    template = json.loads(Path(fast_conf(kubernetes)[key]).read_text())
    template["spec"]["containers"][0]["resources"] = {"limits": {GPU: "2", "ephemeral-storage": "30Mi"}}
    path = kubernetes.folder / "limited.json"
    path.write_text(json.dumps(template))
    # Spark remembers a deleted pod until it lists all of them; a call asks for the reason within seconds of the loss.
    return {"spark.executor.instances": "1", key: str(path), "spark.kubernetes.executor.apiPollingInterval": "600s"}


def next_pod(folder: Path) -> str:
    """The pod in which the function has just started."""
    wait_until((folder / "pod").exists, END_S, "the function runs")
    name = (folder / "pod").read_text()
    (folder / "pod").unlink()
    return name


def preempt(kubernetes: Kubernetes, node: str) -> None:
    """Start a pod of higher priority that needs the GPUs of a node."""
    kubernetes.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "urgent"}, "value": 1000})
    kubernetes.run_pod(
        "urgent",
        "sleep",
        "600",
        container={"resources": {"limits": {GPU: "2"}}},
        priorityClassName="urgent",
        nodeSelector={"kubernetes.io/hostname": node},
    )
