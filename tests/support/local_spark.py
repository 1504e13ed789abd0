"""Real Spark on this machine, for tests."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from sparktrain.cluster.spark_facts import YARN
from sparktrain.cluster.spark_session import jvm_here

LOCAL_CLUSTER = "local-cluster[2,1,1024]"
"""Two executor JVMs, each with one slot."""
ONE_EXECUTOR = "local-cluster[1,2,1024]"
"""One executor JVM with two slots, for a session that one test starts: each JVM costs four seconds of a core."""


def spark_home() -> str:
    """Where the programs of the installed PySpark are, such as `bin/spark-submit`."""
    return os.path.dirname(pyspark.__file__)


@contextmanager
def spark_session(
    master: str, scratch: Path, conf: Mapping[str, str] | None = None, connect: bool = False
) -> Iterator[SparkSession]:
    """A session on `master`, stopped at the end; with `connect`, of Spark Connect, with a server in this process.

    One at a time in a process. Blocks while Spark starts: about 5 s.
    """
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_WORKER_DIR"] = str(scratch / "work")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "1024m",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": jvm_here(),
        "spark.executor.extraJavaOptions": jvm_here(),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        **(conf or {}),
    }
    builder = SparkSession.builder.appName("sparktrain-tests")
    if connect:
        os.environ["JDK_JAVA_OPTIONS"] = jvm_here()  # its server is given none of the settings
    builder = builder.remote(master) if connect else builder.master(master)
    # On YARN spark-submit sends the files that the settings name: it must have all of them.
    if not connect and master != YARN:
        _start_jvm(settings)
    for key, value in settings.items() if not connect else ():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM of this process with what is equal in all sessions: it gives that to later ones as defaults."""
    conf = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        if key.startswith("spark.driver."):
            conf.set(key, value)
    context_class: Any = SparkContext  # without types
    context_class._ensure_initialized(conf=conf)
