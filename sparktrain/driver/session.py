"""A Spark session of our own, for the command line: the API uses the caller's."""

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from sparktrain.driver import resourcemanager
from sparktrain.driver.preflight import FAILURES_KEY, YARN
from sparktrain.errors import SessionError, SparktrainError

_PATIENCE = {FAILURES_KEY: "1000", "spark.executor.maxNumFailures": "1000"}
"""Lost containers end an application of ours no sooner: it has nothing but agents, which may be replaced so often."""
DEFAULT_MASTER = "local-cluster[2,1,2048]"

FAST_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""Half the work to start a JVM that does little: one compiler, and no threads to collect garbage."""
CLASSES = "spark-classes.jsa"
"""What `make classes` stores in the environment's folder: Spark's classes as a JVM has them in memory."""
_LOCAL_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}

_QUIET_LOG = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


@contextmanager
def local_session(master: str | None, conf: Mapping[str, str], name: str) -> Iterator[SparkSession]:
    """The session that `spark-submit` brought, or one on `master`, stopped at the end. Blocks while Spark starts.

    Without `master` and outside of `spark-submit`, a cluster of two executor processes on this machine. Raises
    SessionError when there can be no session.
    """
    # Executors may still write into it when it is removed.
    with tempfile.TemporaryDirectory(prefix="sparktrain-spark-", ignore_cleanup_errors=True) as scratch:
        session = _session(master, conf, name, scratch)
        try:
            yield session
        finally:
            session.stop()


def _session(master: str | None, conf: Mapping[str, str], name: str, scratch: str) -> SparkSession:
    submitted = is_submitted()
    builder = SparkSession.builder.appName(name)
    for key, value in conf.items():
        builder = builder.config(key, value)
    if not submitted:
        builder = _on(builder, master or DEFAULT_MASTER, conf, scratch)
    elif master is not None:
        builder = builder.master(master)
    try:
        settings = {**(_submitted() if submitted else {}), **conf}
        if submitted:
            _check_cluster(master, settings)
        for key, value in _PATIENCE.items():
            builder = builder if key in settings else builder.config(key, value)
        return builder.getOrCreate()
    except SparktrainError:
        raise
    except Exception as error:  # Py4J, Spark and PySpark's own errors have no common root
        where = master or ("spark-submit" if submitted else DEFAULT_MASTER)
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise SessionError(f"no Spark session on {where}: {said}; is Java 17 there, and the master?") from error


def jvm_here(environment: Path = Path(sys.prefix)) -> str:
    """Options for JVMs of this machine alone: with the stored classes, if there are any, they start with half the work.

    A JVM for which they were not made, such as one of another Java, loads its classes one by one, and says nothing.
    """
    stored = environment / CLASSES
    return f"{FAST_JVM} -XX:SharedArchiveFile={shlex.quote(str(stored))}" if stored.exists() else FAST_JVM


def is_submitted() -> bool:
    """Whether `spark-submit` has started this process, and has a session for it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _submitted() -> dict[str, str]:
    """The configuration that spark-submit was given."""
    SparkContext._ensure_initialized()  # the JVM, which spark-submit has started, knows it
    return dict(SparkConf().getAll())


def _check_cluster(master: str | None, settings: Mapping[str, str]) -> None:
    """Before the session: YARN ends an application that asks for what it never gives, and this process with it."""
    if (master or settings.get("spark.master")) == YARN:
        resourcemanager.check(settings)


def _on(builder: SparkSession.Builder, master: str, conf: Mapping[str, str], scratch: str) -> SparkSession.Builder:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("SPARK_WORKER_DIR", scratch)  # local-cluster would write into site-packages
        log = os.path.join(scratch, "log4j2.properties")
        with open(log, "w", encoding="utf-8") as file:
            file.write(_QUIET_LOG)
        quiet = {
            **_LOCAL_CONF,
            "spark.driver.extraJavaOptions": f"{jvm_here()} -Dlog4j2.configurationFile={log}",
            "spark.executor.extraJavaOptions": jvm_here(),
        }
        for key, value in quiet.items():
            if key not in conf:
                builder = builder.config(key, value)
    return builder.master(master)
