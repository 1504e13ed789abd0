"""conf/kubernetes/Dockerfile: its content, built without a registry, and an application in pods that have it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kubernetes import Kubernetes, submission
from tests.support.kubernetes.dockerfile import ImageRoot

pytestmark = [pytest.mark.kubernetes, pytest.mark.image, pytest.mark.timeout(1200)]

CHECKOUT = Path(__file__).parents[2]
FILES = CHECKOUT / "conf" / "kubernetes"
END_S = 240.0
TRAIN = """
import os


def train(ctx):
    assert os.getuid() == 185
    return {"size": float(ctx.size)}
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageRoot]:
    """The image without TensorFlow, which is most of its size."""
    built = ImageRoot(tmp_path_factory.mktemp("image") / "root")
    built.build(FILES / "Dockerfile", CHECKOUT, {"EXTRAS": "spark,s3"})
    yield built
    built.remove()


def test_its_containers_have_python_java_and_spark_for_a_user_who_is_not_root(image: ImageRoot) -> None:
    printed = image.run([*image.entrypoint, "sh", "-c", "id -un; pwd; touch file; spark-submit --version 2>&1"])
    assert printed.startswith("spark\n/opt/spark/work-dir\n")
    assert "version 4." in printed
    report = image.run([*image.entrypoint, "sparktrain", "doctor", "--dir", "/tmp/runs"])
    assert "Java 17" in report
    assert "FAIL" not in report.replace("0 FAIL", "")


def template(image: ImageRoot, cluster: Kubernetes, role: str) -> Path:
    """The pod template of a role, with the files of the image in its pods."""
    document: dict[str, Any] = yaml.safe_load((FILES / f"{role}.yaml").read_text())
    spec = document["spec"]
    [main] = spec["containers"]
    folders = {path: image.folder / path.lstrip("/") for path in ("/usr", "/etc", "/opt")} | {
        os.fspath(cluster.shared): cluster.shared
    }
    volumes, mounts = [], []
    for number, (path, source) in enumerate(folders.items()):
        volumes.append({"name": f"image-{number}", "hostPath": {"path": os.fspath(source), "type": "Directory"}})
        mounts.append({"name": f"image-{number}", "mountPath": path})
    spec["volumes"] = [*spec.get("volumes", ()), *volumes]
    main["volumeMounts"] = [*main.get("volumeMounts", ()), *mounts]
    main["env"] = [
        *main.get("env", ()),
        *({"name": name, "value": image.environment[name]} for name in image.environment),
    ]
    written = cluster.folder / f"image-{role}.yaml"
    written.write_text(yaml.safe_dump(document))
    return written


def test_a_gang_trains_in_pods_of_it(image: ImageRoot, kubernetes: Kubernetes) -> None:
    folder = kubernetes.shared / "image-of-dockerfile"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "train.py").write_text(TRAIN)
    conf = {"spark.pyspark.python": "/opt/env/bin/python"}
    for role, variables in (("driver", "spark.kubernetes.driverEnv"), ("executor", "spark.executorEnv")):
        conf[f"spark.kubernetes.{role}.podTemplateFile"] = os.fspath(template(image, kubernetes, role))
        conf[f"spark.{role}.extraJavaOptions"] = "-XX:+UseSerialGC"
        conf |= {f"{variables}.{name}": image.environment[name] for name in ("JAVA_HOME", "SPARK_HOME")}
    words = [f"{folder}/train.py:train", "--workers", "2", "--backend", "none", "--dir", f"{folder}/runs"]
    program = Path("/opt/jobs/run_gang.py")
    with submission(kubernetes, program, *words, mode="cluster", conf=conf) as submitted:
        assert submitted.wait(END_S) == 0, submitted.output
        printed = submitted.output
    assert "succeeded in" in printed
    assert "size 2.0000" in printed
