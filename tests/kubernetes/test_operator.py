"""Kubeflow's Spark operator, with the application of conf/kubernetes, which loses its driver once."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import sparktrain as st
from tests.support.hadoop.java import java_home
from tests.support.kubernetes import NAMESPACE, Kubernetes, ProgramsMissingError, fast_conf, pod_image
from tests.support.kubernetes.daemons import Daemon
from tests.support.kubernetes.programs import spark_operator
from tests.support.local_spark import spark_home
from tests.support.processes import wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.operator, pytest.mark.timeout(500)]

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "conf" / "kubernetes" / "spark-application.yaml"
APPLICATION = f"/apis/sparkoperator.k8s.io/v1beta2/namespaces/{NAMESPACE}/sparkapplications"
START_S = 150.0
END_S = 200.0
PROGRAM = """
import time
from pathlib import Path


def train(folder, ctx):
    Path(folder, f"started-{ctx.rank}-{ctx.generation}").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.1)
    return {"size": float(ctx.size)}
"""
_WITH_TEMPLATES = 'mkdir -p /tmp/spark && mount -t tmpfs tmpfs /tmp/spark && exec "$@"'
"""It writes templates of pods there, and no setting places them elsewhere."""


@contextmanager
def operator(cluster: Kubernetes) -> Iterator[Daemon]:
    """The operator beside the API server, for the namespace of trainings, with the rights of an administrator."""
    try:
        programs = spark_operator()
    except ProgramsMissingError as error:
        pytest.skip(str(error))
    cluster.kubectl("create", f"--filename={programs}/crd")  # `apply` would write all of it into annotations
    cluster.kubectl("wait", "--for=condition=Established", "customresourcedefinitions", "--all")
    kubeconfig = str(cluster.plane.kubeconfig())
    host, _, port = cluster.plane.url.removeprefix("https://").partition(":")
    environment = {
        "KUBECONFIG": kubeconfig,
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
        "SPARK_HOME": spark_home(),
        "JAVA_HOME": java_home(),
    }
    words = [f"{programs}/spark-operator", "controller", "start", f"--namespaces={NAMESPACE}"]
    options = [f"--kubeconfig={kubeconfig}", "--health-probe-bind-address=0", "--enable-ui-service=false"]
    own = ("unshare", "--mount", "--propagation", "slave", "sh", "-c", _WITH_TEMPLATES, "sh")
    variables = [f"{name}={value}" for name, value in environment.items()]
    log = cluster.folder / "spark-operator.log"
    daemon = Daemon("spark-operator", cluster.place.namespaces, [*own, "env", *variables, *words, *options], log)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()


def application(cluster: Kubernetes, folder: Path) -> dict[str, Any]:
    """The manifest of conf/kubernetes, for pods of tests: without GPUs, with small requests."""
    manifest: dict[str, Any] = yaml.safe_load(MANIFEST.read_text())
    spec = manifest["spec"]
    # The operator refuses none of these, but sets them by itself, or an application has keys of its own for them.
    own = ("authenticate", "podTemplateFile", "container.image", ".cores", ".memory", "memoryOverhead", ".instances")
    conf = {key: value for key, value in fast_conf(cluster, "cluster").items() if not any(part in key for part in own)}
    given = {key: value for key, value in spec["sparkConf"].items() if "gpu" not in key and key != "spark.task.cpus"}
    requests = {f"spark.kubernetes.{role}.request.cores": "200m" for role in ("driver", "executor")}
    spec["sparkConf"] = {**conf, **given, **requests}
    for role in ("driver", "executor"):
        spec[role]["template"] = {"spec": pod_image.template(cluster.shared, role)["spec"]}
        spec[role] |= {"cores": 1, "memory": "512m", "memoryOverhead": "1536m"}
    spec["executor"]["instances"] = 2
    del spec["executor"]["gpu"]
    spec["restartPolicy"]["onFailureRetryInterval"] = 1
    words = ["--workers", "2", "--backend", "none", "--param", f"folder={folder}"]
    place = ["--dir", f"{folder}/runs", "--name", "training"]
    return manifest | {
        "spec": {
            **spec,
            "image": pod_image.IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "mainApplicationFile": f"local://{ROOT}/jobs/run_gang.py",
            "arguments": [f"{folder}/train.py:train", *words, *place],
        }
    }


def state(cluster: Kubernetes) -> str:
    """Of the application, as the operator reports it."""
    status = cluster.api.get(f"{APPLICATION}/training").get("status", {})
    return str(status.get("applicationState", {}).get("state"))


def test_the_operator_starts_a_lost_driver_again_and_its_run_continues(kubernetes: Kubernetes) -> None:
    folder = kubernetes.shared / "operated"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "train.py").write_text(PROGRAM)

    def await_members(generation: int, timeout_s: float) -> None:
        names = [folder / f"started-{rank}-{generation}" for rank in (0, 1)]
        wait_until(lambda: all(path.exists() for path in names), timeout_s, f"generation {generation} trains")

    with operator(kubernetes) as daemon:
        kubernetes.api.post(APPLICATION, application(kubernetes, folder))
        try:
            await_members(1, START_S)
            [driver] = kubernetes.pods("spark-role=driver")
            kubernetes.delete_pod(driver["metadata"]["name"], grace_s=0)
            await_members(2, END_S)
            (folder / "go").touch()
            wait_until(lambda: state(kubernetes) in ("COMPLETED", "FAILED"), END_S, "the application ends")
        except AssertionError as error:
            error.add_note(daemon.log.read_text()[-5000:])
            raise
        assert state(kubernetes) == "COMPLETED"
    result = st.load(f"{folder}/runs/training")
    assert (result.metrics, len(result.restarts)) == ({"size": 2.0}, 1)
