"""Pods that may write nowhere but to what is mounted, with a user that no image knows."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes import Kubernetes, submission
from tests.support.kubernetes.pod_image import template

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

PROGRAM = Path(__file__).with_name("pod_trainings.py")
END_S = 240.0
UNKNOWN = 98765


def restricted(kubernetes: Kubernetes, role: str, users: Path) -> dict[str, Any]:
    """The template of tests with a read-only root, and that user, who has a line in a file alone."""
    pod = template(kubernetes.shared, role)
    spec = pod["spec"]
    spec["securityContext"] |= {"runAsUser": UNKNOWN, "runAsGroup": UNKNOWN, "fsGroup": UNKNOWN}
    [main] = spec["containers"]
    main["securityContext"]["readOnlyRootFilesystem"] = True
    [volume] = [volume for volume in spec["volumes"] if volume["name"] == "users"]
    volume["hostPath"]["path"] = str(users)
    if role == "driver":
        for name, path in (("temporary", "/tmp"), ("work", "/opt/spark/work-dir")):
            spec["volumes"].append({"name": name, "emptyDir": {}})
            main["volumeMounts"].append({"name": name, "mountPath": path})
    return pod


def test_a_sweep_and_a_gang_train_with_a_read_only_root_and_any_user(kubernetes: Kubernetes) -> None:
    folder = kubernetes.shared / "restricted"
    folder.mkdir()
    folder.chmod(0o777)
    users = folder / "passwd"
    users.write_text(f"any:x:{UNKNOWN}:{UNKNOWN}::/:/bin/sh\n")
    conf = {}
    for role in ("driver", "executor"):
        path = folder / f"{role}.json"
        path.write_text(json.dumps(restricted(kubernetes, role, users)))
        conf[f"spark.kubernetes.{role}.podTemplateFile"] = str(path)
    with submission(kubernetes, PROGRAM, str(folder), mode="cluster", conf=conf) as submitted:
        submitted.wait(END_S)
        output = submitted.output
    assert (folder / "results.json").exists(), output
    results = json.loads((folder / "results.json").read_text())
    assert results["sweep"] == [{"y": 2.0}, {"y": 4.0}, {"y": 6.0}]
    assert results["gang"]["members"] == 2
    assert {json.loads((folder / rank).read_text())["user"] for rank in ("0", "1")} == {UNKNOWN}
