"""Applications of Spark that run in pods, with the rights of conf/kubernetes/role.yaml alone."""

import json
from pathlib import Path

import pytest

from tests.support.kubernetes import ACCOUNT, NAMESPACE, SUBMITTER, Kubernetes, Mode, submission

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

PROGRAM = Path(__file__).with_name("pod_trainings.py")
END_S = 240.0


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_sweep_and_a_gang_train_in_pods_of_two_nodes(mode: Mode, kubernetes: Kubernetes) -> None:
    folder = kubernetes.shared / f"trainings-{mode}"
    folder.mkdir()
    folder.chmod(0o777)
    with submission(kubernetes, PROGRAM, str(folder), mode=mode) as submitted:
        status = submitted.wait(END_S)
        output = submitted.output
    assert status == 0, output
    results = json.loads((folder / "results.json").read_text())
    assert results["sweep"] == [{"y": 2.0}, {"y": 4.0}, {"y": 6.0}]
    assert results["gang"]["weight"] == pytest.approx(3.0, abs=0.01)
    assert results["gang"]["bias"] == pytest.approx(1.0, abs=0.01)
    pods = [json.loads((folder / rank).read_text()) for rank in ("0", "1")]
    assert {(pod["user"], pod["shared_bytes"]) for pod in pods} == {(185, 2 << 30)}, "of conf/kubernetes/executor.yaml"
    subnets = {str(kubernetes.place.block.pods(number)).removesuffix(".0/24") for number in (0, 1)}
    assert {pod["address"].rpartition(".")[0] for pod in pods} == subnets
    assert refused(kubernetes) == []


def refused(kubernetes: Kubernetes) -> list[tuple[str, str]]:
    """What a driver or a submitter has asked for, and its role does not allow, in the namespace of the role."""
    records = [record for account in (ACCOUNT, SUBMITTER) for record in kubernetes.plane.requests(account)]
    return [
        (record["verb"], record["requestURI"])
        for record in records
        if record["responseStatus"]["code"] == 403
        and f"/namespaces/{NAMESPACE}/" in record["requestURI"]
        and not record["userAgent"].startswith("Python-urllib")
    ]
