"""Stores outside of the cluster, from pods: the contract, with credentials that pods have by reference alone."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import s3fs

from tests.support.hadoop import hdfs
from tests.support.kubernetes import Kubernetes, submission
from tests.support.object_storage import s3_server

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

CONTRACT = Path(__file__).with_name("pod_store.py")
PROGRAM = Path(__file__).with_name("pod_secrets.py")
CONTRACT_S = 240.0
END_S = 240.0
KEY, SECRET = "testing", "a-secret-of-the-object-store"
NOT_ROOT = {"runAsNonRoot": True, "runAsUser": 185, "runAsGroup": 185}


@pytest.fixture(scope="module")
def s3(kubernetes: Kubernetes) -> Iterator[str]:
    """The endpoint of an S3 that pods reach; the secret `s3` has what they need to use it."""
    words = (f"--from-literal=key={KEY}", f"--from-literal=secret={SECRET}", "--namespace=training")
    kubernetes.kubectl("create", "secret", "generic", "s3", *words)
    with s3_server(host=kubernetes.host) as endpoint:
        yield endpoint


def by_reference(name: str, key: str) -> dict[str, Any]:
    """A variable of a container, with what the secret `s3` has at `key`."""
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": "s3", "key": key}}}


def run_contract(cluster: Kubernetes, name: str, store: str, variables: list[Mapping[str, Any]]) -> None:
    """Have a pod that is not root run the contract of a store. Raises AssertionError, with what pytest prints."""
    words = (sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--basetemp=/tmp/pytest")
    container = {
        "env": [{"name": "STORE", "value": store}, *variables],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "workingDir": str(CONTRACT.parents[2]),
    }
    cluster.run_pod(name, *words, str(CONTRACT), container=container, securityContext=NOT_ROOT)
    try:
        phase = cluster.wait_pod(name, timeout_s=CONTRACT_S)
        assert phase == "Succeeded", cluster.logs(name)
    finally:
        cluster.delete_pod(name, grace_s=0)


def test_an_object_store_keeps_the_contract_in_pods(kubernetes: Kubernetes, s3: str) -> None:
    variables = [
        by_reference("AWS_ACCESS_KEY_ID", "key"),
        by_reference("AWS_SECRET_ACCESS_KEY", "secret"),
        {"name": "AWS_ENDPOINT_URL", "value": s3},
        {"name": "AWS_REGION", "value": "us-east-1"},
    ]
    run_contract(kubernetes, "contract-s3", "s3://runs", variables)


def test_hdfs_keeps_the_contract_in_pods(kubernetes: Kubernetes, tmp_path: Path) -> None:
    with hdfs(tmp_path / "hdfs", host=kubernetes.host) as cluster:
        cluster.cli("-mkdir", "/runs")
        cluster.cli("-chown", "spark", "/runs")
        run_contract(kubernetes, "contract-hdfs", f"{cluster.url}/runs", [])


def of_run(endpoint: str) -> dict[str, bytes]:
    """All objects of the run `secrets`, by their keys."""
    client = s3fs.S3FileSystem(key=KEY, secret=SECRET, endpoint_url=endpoint)
    return {key: client.cat_file(key) for key in client.find("runs/secrets")}


def test_a_run_leaves_no_secret_in_logs_arguments_or_its_directory(kubernetes: Kubernetes, s3: str) -> None:
    conf = {"spark.executor.instances": "1", "spark.kubernetes.executor.deleteOnTermination": "false"}
    for role, variable in (("driver", "spark.kubernetes.driverEnv"), ("executor", "spark.executorEnv")):
        conf[f"spark.kubernetes.{role}.secretKeyRef.AWS_ACCESS_KEY_ID"] = "s3:key"
        conf[f"spark.kubernetes.{role}.secretKeyRef.AWS_SECRET_ACCESS_KEY"] = "s3:secret"
        conf |= {f"{variable}.AWS_ENDPOINT_URL": s3, f"{variable}.AWS_REGION": "us-east-1"}
    with submission(kubernetes, PROGRAM, "s3://runs/secrets", mode="cluster", conf=conf) as submitted:
        status = submitted.wait(END_S)
        pods = submitted.pods
        logs = "".join([submitted.output, *(kubernetes.logs(pod["metadata"]["name"]) for pod in pods)])
    assert status == 0, logs
    files = of_run(s3)
    [results] = [content for key, content in files.items() if key.endswith("/results.json")]
    assert [trial["metrics"]["leaks"] for trial in json.loads(results)["trials"]] == [0.0, 0.0]
    assert {pod["metadata"]["labels"]["spark-role"] for pod in pods} == {"driver", "executor"}
    written = {"logs": logs, "pods": json.dumps(pods), **{key: str(content) for key, content in files.items()}}
    token = (kubernetes.folder / "token-cluster").read_text()
    for secret in (SECRET, token, "PRIVATE KEY"):
        assert [name for name, text in written.items() if secret in text] == []
