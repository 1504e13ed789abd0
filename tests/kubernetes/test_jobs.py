"""A Job of Kubernetes that trains without Spark, by conf/kubernetes/job.yaml."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import sparktrain as st
from tests.support.kubernetes import NAMESPACE, Kubernetes
from tests.support.kubernetes.pod_image import IMAGE, volumes
from tests.support.processes import wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]

TRAIN = Path(__file__).with_name("held_trial.py")
JOB = Path(__file__).parents[2] / "conf" / "kubernetes" / "job.yaml"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
UNNAMED = 98765
"""A user without a name in /etc/passwd."""
STARTS_S = 90.0


def job_of(kubernetes: Kubernetes, folder: Path) -> dict[str, Any]:
    """The Job of the file with a call of tests, and what the pods of tests mount in place of its claim."""
    job: dict[str, Any] = yaml.safe_load(JOB.read_text())
    pod = job["spec"]["template"]["spec"]
    [main] = pod["containers"]
    assert main["command"][1] == "sweep"
    call = ["--metric=y", "--mode=max", "--local", "--slots=2", f"--dir={folder}/runs", "--name=held"]
    grid = ["--grid=x=0,1", f"--grid=folder={folder}"]
    main["command"] = [sys.executable, "-m", "sparktrain", "sweep", f"{TRAIN}:held", *grid, *call]
    main["image"] = IMAGE
    main["resources"] = {"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"cpu": "200m"}}
    pod["securityContext"]["runAsUser"] = UNNAMED
    pod_volumes, mounts = volumes(kubernetes.shared)
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] != "runs"] + pod_volumes
    main["volumeMounts"] = [mount for mount in main["volumeMounts"] if mount["name"] != "runs"] + mounts
    return job


def test_a_job_trains_in_its_pod_and_resumes_in_the_next(kubernetes: Kubernetes) -> None:
    folder = kubernetes.shared / "job"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "hold-1").touch()
    kubernetes.api.post(JOBS, job_of(kubernetes, folder))
    try:
        wait_until(lambda: len(starts(folder, 0)) == len(starts(folder, 1)) == 1, STARTS_S, "both trials have started")
        [first] = kubernetes.pods("job-name=sweep")
        name = first["metadata"]["name"]
        ended = "1 of 2 trials done"
        wait_until(lambda: ended in kubernetes.logs(name), STARTS_S, ended)
        assert "which has 1 core: trials slow each other down; --slots 1 avoids that" in kubernetes.logs(name)
        kubernetes.delete_pod(name)
        wait_until(lambda: len(starts(folder, 1)) == 2, STARTS_S, "the next pod continues")
        (folder / "hold-1").unlink()
        wait_until(lambda: kubernetes.api.get(f"{JOBS}/sweep")["status"].get("succeeded"), STARTS_S, "the Job succeeds")
    finally:
        kubernetes.api.delete(f"{JOBS}/sweep?propagationPolicy=Foreground")
    result = st.attach(str(folder / "runs" / "held")).result(timeout=5, progress=False)
    assert [trial.metrics for trial in result.trials] == [{"y": 0.0}, {"y": 1.0}]
    assert len(starts(folder, 0)) == 1, "what has ended is not repeated"


def starts(folder: Path, x: int) -> list[Path]:
    return list(folder.glob(f"start-{x}-*"))
