"""Drivers in pods that spark-submit has not made: that of a notebook, and that of a Spark Connect server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import yaml

import sparktrain as st
from tests.support.kubernetes import ACCOUNT, NAMESPACE, Kubernetes, conf_in_pod, driver_container
from tests.support.kubernetes.pod_image import IMAGE, volumes
from tests.support.local_spark import spark_home
from tests.support.processes import wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

HERE = Path(__file__).parent
STARTS_S = 150.0
ENDS_S = 120.0
PORT = 15002
CONNECT = HERE.parents[1] / "conf" / "kubernetes" / "connect.yaml"
RESULTS = [{"y": 0.0}, {"y": 1.0}]


def folder_of(kubernetes: Kubernetes, name: str) -> Path:
    """A folder that pods write to."""
    folder = kubernetes.shared / name
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def test_a_notebook_in_a_pod_trains_without_a_service(kubernetes: Kubernetes) -> None:
    folder = folder_of(kubernetes, "notebook")
    settings = folder / "spark.json"
    settings.write_text(json.dumps(conf_in_pod(kubernetes, "notebook")))
    words = (sys.executable, str(HERE / "notebook.py"), str(settings), str(folder))
    kubernetes.run_pod("notebook", *words, serviceAccountName=ACCOUNT, container=driver_container())
    try:
        phase = kubernetes.wait_pod("notebook", timeout_s=STARTS_S + ENDS_S)
        printed = kubernetes.logs("notebook")
    finally:
        kubernetes.delete_pod("notebook", grace_s=0)
    assert phase == "Succeeded", printed
    assert "held: succeeded. 2 trials" in printed
    assert "bring the job with `sparktrain submit --deploy-mode cluster`" in printed
    assert not (folder / "runs" / "submitted").exists()
    hosts = {path.name.partition("-")[2].partition("-")[2] for path in folder.glob("start-*")}
    assert all("-exec-" in host for host in hosts), "trained in pods of executors"


@contextmanager
def connect_server(kubernetes: Kubernetes, folder: Path) -> Iterator[None]:
    """The pod of conf/kubernetes/connect.yaml, with what the pods of tests mount, and their settings in a folder."""
    pod, _ = yaml.safe_load_all(CONNECT.read_text())
    settings = conf_in_pod(kubernetes, "connect")
    (folder / "spark.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    spec = pod["spec"]
    [main] = spec["containers"]
    own = driver_container()
    pod_volumes, mounts = volumes(kubernetes.shared)
    main["command"][0] = f"{spark_home()}/bin/spark-submit"
    main["command"][2] = f"--properties-file={folder}/spark.conf"
    main |= {"image": IMAGE, "volumeMounts": mounts, "env": main["env"] + own["env"]}
    spec["volumes"] = pod_volumes
    kubernetes.api.post(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
    try:
        yield
    finally:
        kubernetes.delete_pod("connect", grace_s=0)


def test_a_run_in_pods_outlives_its_client_and_the_pod_of_its_coordinator(
    kubernetes: Kubernetes, tmp_path: Path
) -> None:
    folder = folder_of(kubernetes, "connect")
    for x in (0, 1):
        (folder / f"hold-{x}").touch()
    with connect_server(kubernetes, folder):
        kubernetes.wait_started("connect", timeout_s=STARTS_S)
        server = kubernetes.pod("connect")["status"]["podIP"]
        line = [sys.executable, str(HERE / "connect_client.py"), f"sc://{server}:{PORT}", str(folder)]
        log = tmp_path / "client"
        with (
            log.open("wb") as output,
            subprocess.Popen(line, stdin=subprocess.PIPE, stdout=output, stderr=output, umask=0) as client,
        ):
            try:
                wait_until(lambda: "submitted" in log.read_text() or client.poll(), STARTS_S, "submit has returned")
                assert client.poll() is None, log.read_text()
                wait_until(lambda: len(list(folder.glob("start-*"))) == 2, STARTS_S, "both trials train")
            finally:
                client.kill()
        assert "its coordinator stays attached to the Connect server at" in log.read_text()
        kubernetes.delete_pod(coordinator_pod(kubernetes), grace_s=0)
        wait_until(lambda: len(list(folder.glob("start-*"))) == 3, STARTS_S, "what trained there starts elsewhere")
        for x in (0, 1):
            (folder / f"hold-{x}").unlink()
        result = st.attach(str(folder / "runs" / "held")).result(ENDS_S, progress=False)
    assert [trial.metrics for trial in result.trials] == RESULTS
    assert len(list(folder.glob("start-*"))) == 3, "the other one has trained on"


def coordinator_pod(kubernetes: Kubernetes) -> str:
    """The executor's pod that has the coordinator, by the control groups of the processes of this machine."""
    names = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in kubernetes.pods("spark-role=executor")}
    for process in psutil.process_iter(["cmdline"]):
        if "sparktrain.driver.clustered" in (process.info["cmdline"] or ()):
            groups = Path(f"/proc/{process.pid}/cgroup").read_text()
            for uid, name in names.items():
                if uid in groups:
                    return str(name)
    raise AssertionError(f"no coordinator in {names}, on {os.uname().nodename}")
