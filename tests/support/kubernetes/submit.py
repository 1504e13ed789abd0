"""spark-submit on a cluster of tests: settings with which an application starts fast, and how it ended."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from sparktrain.cluster.spark_session import jvm_here
from tests.support.daemons import DaemonError
from tests.support.hadoop.java import java_home
from tests.support.kubernetes import pod_image
from tests.support.kubernetes.api import ApiError
from tests.support.kubernetes.cluster import ACCOUNT, NAMESPACE, SUBMITTER, Kubernetes
from tests.support.local_spark import spark_home
from tests.support.spark_submit import SparkSubmit

Mode = Literal["client", "cluster"]

TAG = "application"
"""The label of all pods of a submission."""


def fast_conf(cluster: Kubernetes, mode: Mode = "client") -> dict[str, str]:
    """Spark's settings for an application of two small executors, on a node each, started as fast as may be.

    The driver, on this machine or in a pod, has the rights of the service account alone.
    """
    address = {"spark.driver.host": cluster.host, "spark.driver.bindAddress": cluster.host}
    if mode == "cluster":
        rights, token = "spark.kubernetes.authenticate.submission", cluster.token(SUBMITTER)
    else:
        rights, token = "spark.kubernetes.authenticate", cluster.token(ACCOUNT)
    environment = {"JAVA_HOME": java_home(), "SPARK_HOME": spark_home()}
    return {
        "spark.kubernetes.namespace": NAMESPACE,
        "spark.kubernetes.container.image": pod_image.IMAGE,
        "spark.kubernetes.container.image.pullPolicy": "IfNotPresent",
        f"{rights}.caCertFile": os.fspath(cluster.plane.certificate),
        f"{rights}.oauthTokenFile": os.fspath(_written(cluster, f"token-{mode}", token)),
        "spark.kubernetes.authenticate.driver.serviceAccountName": ACCOUNT,
        # The name of the service in its place needs a DNS, which the cluster does not have.
        "spark.kubernetes.driver.master": cluster.plane.url,
        **(address if mode == "client" else {}),
        **{
            f"spark.kubernetes.{role}.podTemplateFile": os.fspath(_template(cluster, role))
            for role in ("driver", "executor")
        },
        # Spark replaces that of the template.
        "spark.kubernetes.executor.terminationGracePeriodSeconds": "120s",
        "spark.executor.instances": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.executor.memoryOverhead": "1536m",
        "spark.driver.memory": "512m",
        "spark.driver.memoryOverhead": "1024m",
        **{f"spark.kubernetes.{role}.request.cores": "200m" for role in ("driver", "executor")},
        "spark.pyspark.python": sys.executable,
        "spark.ui.enabled": "false",
        **{f"spark.{role}.extraJavaOptions": jvm_here() for role in ("driver", "executor")},
        **{f"spark.executorEnv.{name}": value for name, value in environment.items()},
        **{f"spark.kubernetes.driverEnv.{name}": value for name, value in environment.items()},
    }


def driver_container() -> dict[str, Any]:
    """More of a container that runs a driver in client mode: Spark's programs, and a user who is not root."""
    environment = {"JAVA_HOME": java_home(), "SPARK_HOME": spark_home(), "PYSPARK_PYTHON": sys.executable}
    return {
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "securityContext": {"runAsUser": 185, "runAsGroup": 185},
    }


def conf_in_pod(cluster: Kubernetes, pod: str) -> dict[str, str]:
    """As `fast_conf`, for a driver in client mode in a pod of that name, which has the account of drivers."""
    conf = fast_conf(cluster)
    template = cluster.shared / "executor.json"
    template.write_text(json.dumps(pod_image.template(cluster.shared, "executor")))
    of_host = (
        "spark.driver.host",
        "spark.driver.bindAddress",
        "spark.kubernetes.authenticate.",
        "spark.kubernetes.driver.",
    )
    return {
        **{key: value for key, value in conf.items() if not key.startswith(of_host)},
        "spark.master": cluster.master,
        "spark.kubernetes.executor.podTemplateFile": os.fspath(template),
        "spark.kubernetes.driver.pod.name": pod,
    }


def _template(cluster: Kubernetes, role: str) -> Path:
    return _written(cluster, f"{role}.json", json.dumps(pod_image.template(cluster.shared, role)))


def _written(cluster: Kubernetes, name: str, text: str) -> Path:
    path = cluster.folder / name
    path.write_text(text)
    return path


class Submission(SparkSubmit):
    """One application from its `spark-submit` to its end."""

    def __init__(self, cluster: Kubernetes, command: list[str], tag: str) -> None:
        env = {
            "SPARK_HOME": spark_home(),
            "JAVA_HOME": java_home(),
            "SPARK_SUBMIT_OPTS": jvm_here(),
            "SPARK_LOCAL_IP": cluster.host,
            "PYSPARK_PYTHON": sys.executable,
        }
        # Executors, which are not root, write into the folders of a driver that is.
        super().__init__(cluster.folder, command, tag, env, umask=0)
        self._cluster = cluster

    @property
    def pods(self) -> list[dict[str, Any]]:
        """Those of its pods that are there now; `executors` and `driver` are part of them."""
        return self._cluster.pods(f"{TAG}={self.tag}")

    @property
    def executors(self) -> list[dict[str, Any]]:
        """The pods of its executors that are there now."""
        return [pod for pod in self.pods if pod["metadata"]["labels"]["spark-role"] == "executor"]

    @property
    def output(self) -> str:
        """See base class."""
        shown = super().output
        for pod in self.pods:
            if pod["metadata"]["labels"]["spark-role"] == "driver":
                with suppress(ApiError):  # its container has not started
                    shown += self._cluster.logs(pod["metadata"]["name"])
        return shown

    def story(self) -> str:
        """See base class."""
        return self._cluster.kubectl("describe", "pods", f"--namespace={NAMESPACE}", f"--selector={TAG}={self.tag}")

    def close(self) -> None:
        """End spark-submit and its pods, if they have not ended."""
        super().close()
        for pod in self.pods:
            with suppress(DaemonError):  # it ends by itself
                self._cluster.delete_pod(pod["metadata"]["name"], grace_s=0)


@contextmanager
def submission(
    cluster: Kubernetes, program: Path, *arguments: str, mode: Mode = "client", conf: Mapping[str, str] | None = None
) -> Iterator[Submission]:
    """An application that was submitted; ended in any case, whatever becomes of the block. `conf` goes before
    `fast_conf`. In cluster mode, pods must see `program`, as they see the checkout and `cluster.shared`."""
    tag, settings = _tagged(cluster, program.stem, mode, conf or {})
    options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    name = os.fspath(program) if mode == "client" else f"local://{program}"
    line = [f"{spark_home()}/bin/spark-submit", "--master", cluster.master, "--deploy-mode", mode, *options, name]
    with _started(Submission(cluster, [*line, *arguments], tag)) as submitted:
        yield submitted


@contextmanager
def sparktrain_submit(
    cluster: Kubernetes, *words: str, mode: Mode = "cluster", conf: Mapping[str, str] | None = None
) -> Iterator[Submission]:
    """As `submission`, of `sparktrain submit` with these words, which has Spark's configuration from a file."""
    tag, settings = _tagged(cluster, "submit", mode, conf or {})
    place = {"spark.master": cluster.master, "spark.submit.deployMode": mode}
    lines = [f"{key} {value}\n" for key, value in {**settings, **place}.items()]
    properties = _written(cluster, f"{tag}.conf", "".join(lines))
    line = [sys.executable, "-m", "sparktrain", "submit", "--properties-file", os.fspath(properties), *words]
    with _started(Submission(cluster, line, tag)) as submitted:
        yield submitted


def _tagged(cluster: Kubernetes, name: str, mode: Mode, conf: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """A label for all pods of an application, and its settings with that."""
    tag = f"{name}-{uuid4().hex[:8]}".lower().replace("_", "-")
    labels = {f"spark.kubernetes.{role}.label.{TAG}": tag for role in ("driver", "executor")}
    return tag, {**fast_conf(cluster, mode), **labels, **conf}


@contextmanager
def _started(submitted: Submission) -> Iterator[Submission]:
    submitted.start()
    try:
        yield submitted
    finally:
        submitted.close()
