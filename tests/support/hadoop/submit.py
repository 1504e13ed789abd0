"""spark-submit on a YARN of tests: settings with which an application starts fast, and how it ended."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal
from uuid import uuid4

from sparktrain.cluster.spark_session import FAST_JVM, jvm_here
from sparktrain.driver.submitted_jobs.command import ENVIRONMENT, PYTHON
from tests.support.daemons import DaemonError
from tests.support.hadoop.ports import HOST
from tests.support.hadoop.yarn import Yarn
from tests.support.hadoop.yarn_conf import LABEL
from tests.support.spark_submit import SparkSubmit

Mode = Literal["client", "cluster"]

_MASTER_PYTHON_KEY = "spark.yarn.appMasterEnv.PYSPARK_PYTHON"


def fast_conf(cluster: Yarn) -> dict[str, str]:
    """Spark's settings for an application of two small executors on the labelled node, started as fast as may be."""
    env = cluster.env
    return {
        "spark.yarn.jars": f"local:{env['SPARK_HOME']}/jars/*",  # else 400 MB are uploaded for each application
        "spark.yarn.scheduler.heartbeat.interval-ms": "500",
        "spark.yarn.executor.nodeLabelExpression": LABEL,
        "spark.executor.instances": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.yarn.am.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.yarn.maxAppAttempts": "1",
        **{f"spark.{who}.extraClassPath": _class_path(env["SPARK_HOME"]) for who in ("driver", "executor")},
        **{f"spark.{who}.extraJavaOptions": jvm_here() for who in ("driver", "executor")},
        "spark.yarn.am.extraJavaOptions": FAST_JVM,
        # Each announces the address of another interface otherwise.
        **{f"spark.{env_of}.SPARK_LOCAL_IP": HOST for env_of in ("executorEnv", "yarn.appMasterEnv")},
        _MASTER_PYTHON_KEY: env["PYSPARK_PYTHON"],
    }


def _class_path(spark_home: str) -> str:
    """Spark's jars as its own programs order them: with those first, containers too can use the stored classes."""
    [first] = Path(spark_home, "jars").glob("slf4j-api-*.jar")
    return f"{first}:{spark_home}/jars/*"


def _from_pack(cluster: Yarn, mode: Mode) -> dict[str, str]:
    """By which all containers run from the cluster's pack, if it has one; a driver here has this process' Python."""
    if cluster.pack is None:
        return {}
    return {
        "spark.yarn.dist.archives": f"{cluster.pack}#{ENVIRONMENT}",
        "spark.pyspark.python": PYTHON,
        "spark.pyspark.driver.python": PYTHON if mode == "cluster" else cluster.env["PYSPARK_PYTHON"],
        _MASTER_PYTHON_KEY: PYTHON,
    }


class Submission(SparkSubmit):
    """One application from its `spark-submit` to its end."""

    def __init__(self, cluster: Yarn, command: list[str], tag: str) -> None:
        super().__init__(cluster.folder, command, tag, cluster.env)
        self.containers: dict[str, str] = {}
        """All that the ResourceManager was seen to give it, the application master's too: the node of each, by id."""
        self._cluster = cluster
        self._application: str | None = None

    @property
    def application(self) -> str | None:
        """Its id, as soon as the ResourceManager has it."""
        if self._application is None:
            apps = (self._cluster.rest(f"apps?applicationTags={self.tag}")["apps"] or {}).get("app", ())
            self._application = next((str(app["id"]) for app in apps), None)
        return self._application

    @property
    def output(self) -> str:
        """What spark-submit has printed until now, on stdout and stderr; in cluster mode, the driver and executors
        too."""
        shown = super().output
        return shown if self._application is None else shown + self._cluster.logs(self._application)

    @property
    def diagnostics(self) -> str:
        """The ResourceManager's report of its end."""
        return str(self._cluster.application(self.application or "")["diagnostics"])

    def look(self) -> None:
        """Ask the ResourceManager for its containers of now. It is asked in vain while it is down."""
        with suppress(DaemonError):
            if self.application is not None:
                self.containers |= self._cluster.containers_of(self.application)

    def close(self) -> None:
        """End spark-submit and its application, if they have not ended."""
        super().close()
        with suppress(DaemonError):
            if self.application is not None:
                self._cluster.kill_application(self.application)


@contextmanager
def submission(
    cluster: Yarn,
    program: Path,
    *arguments: str,
    mode: Mode = "client",
    conf: Mapping[str, str] | None = None,
    properties: Path | None = None,
) -> Iterator[Submission]:
    """An application that was submitted; ended in any case, whatever becomes of the block. `conf` goes before
    `fast_conf` and the cluster's pack, which go before the file of `properties`."""
    tag = f"{program.stem}-{uuid4().hex[:8]}".lower().replace("_", "-")
    settings = {**fast_conf(cluster), **_from_pack(cluster, mode), "spark.yarn.tags": tag, **(conf or {})}
    options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    spark_submit = os.path.join(cluster.env["SPARK_HOME"], "bin", "spark-submit")
    where = ["--master", "yarn", "--deploy-mode", mode]
    where += ["--properties-file", os.fspath(properties)] if properties is not None else []
    submitted = Submission(cluster, [spark_submit, *where, *options, os.fspath(program), *arguments], tag)
    submitted.start()
    try:
        yield submitted
    finally:
        submitted.close()


def submit(
    cluster: Yarn,
    program: Path,
    *arguments: str,
    mode: Mode = "client",
    conf: Mapping[str, str] | None = None,
    properties: Path | None = None,
    timeout_s: float = 180.0,
) -> Submission:
    """Run a program to its end, which takes 15 to 30 s; the first on a cluster takes longer: its nodes unpack the pack.
    Raises DaemonError when it has not ended after `timeout_s`."""
    with submission(cluster, program, *arguments, mode=mode, conf=conf, properties=properties) as submitted:
        submitted.wait(timeout_s)
        return submitted
