"""What pods run: an image with nothing but an entry point, and all else from this machine."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.support.kubernetes.image import Image
from tests.support.kubernetes.node import PAUSE
from tests.support.kubernetes.programs import programs

IMAGE = "localhost/sparktrain:1"
_ROOT = Path(__file__).parents[3]
_FILES = _ROOT / "conf" / "kubernetes" / "image"
_WORKDIR = "opt/spark/work-dir"
"""As in Spark's own image: files of a job go there."""


def pause_image() -> Image:
    """Of the containers that hold the namespaces of a pod."""
    return Image(name=PAUSE, entrypoint="/pause", files={"/pause": (programs() / "pause").read_bytes()}, links={})


def pod_image() -> Image:
    """Of all other containers: Spark's entry points, and links to what `volumes` mounts."""
    return Image(
        name=IMAGE,
        entrypoint="/opt/entrypoint.sh",
        files={f"/opt/{path.name}": path.read_bytes() for path in sorted(_FILES.iterdir())},
        links={name: f"usr/{name}" for name in ("bin", "sbin", "lib", "lib64")},
        folders=("tmp", "var/tmp", "opt/spark", _WORKDIR),
        workdir=f"/{_WORKDIR}",
    )


def volumes(shared: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The volumes of a pod, and where its container mounts them: this machine's programs, this Python, its environment
    and the checkout, which it can only read, and `shared`."""
    python = Path(sys.base_prefix)
    read_only = [Path("/usr"), Path("/etc"), Path(sys.prefix), _ROOT]
    if not python.is_relative_to("/usr"):
        read_only.append(python)
    paths = {path: True for path in read_only if path.exists()} | {shared: False}
    volumes = []
    mounts = []
    # Java's login fails for a user without a name, and with it Hadoop's in each JVM of Spark.
    volumes.append({"name": "users", "hostPath": {"path": os.fspath(_users(shared)), "type": "File"}})
    mounts.append({"name": "users", "mountPath": "/etc/passwd", "readOnly": True})
    for number, (path, is_read_only) in enumerate(paths.items()):
        volumes.append({"name": f"host-{number}", "hostPath": {"path": os.fspath(path), "type": "Directory"}})
        mounts.append({"name": f"host-{number}", "mountPath": os.fspath(path), "readOnly": is_read_only})
    return volumes, mounts


def _users(shared: Path) -> Path:
    """This machine's users, and that of the pods, as the image of a user has them."""
    users = shared / "passwd"
    users.write_text(f"{Path('/etc/passwd').read_text()}spark:x:185:185::/tmp:/bin/sh\n")
    return users


def pod(shared: Path, name: str, words: Sequence[str], container: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """A pod with one container that runs `words`; `container` is more of it, and `spec` of the pod's specification."""
    pod_volumes, mounts = volumes(shared)
    main = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": list(words),
        "volumeMounts": mounts,
        **container,
    }
    rest = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, **spec}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [main], "volumes": pod_volumes, **rest},
    }


def template(shared: Path, role: str) -> dict[str, Any]:
    """The pod template of `conf/kubernetes` for Spark's `driver` or `executor`, with what the pods of tests mount."""
    document: dict[str, Any] = yaml.safe_load((_ROOT / "conf" / "kubernetes" / f"{role}.yaml").read_text())
    pod_volumes, mounts = volumes(shared)
    spec = document["spec"]
    [main] = spec["containers"]
    main["volumeMounts"] = [*main.get("volumeMounts", ()), *mounts]
    spec["volumes"] = [*spec.get("volumes", ()), *pod_volumes]
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"spark-role": "executor"}},
    }
    spec["topologySpreadConstraints"] = [spread]
    return document
