"""A Spark session of our own, for the command line and `sparktrain.session`; other calls use the caller's."""

import logging
import os
import pwd
import re
import shlex
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from sparktrain.base.optional_packages import is_submitted, is_supported
from sparktrain.base.routes import address_towards
from sparktrain.cluster import driver_address, jvm, yarn_client
from sparktrain.cluster.kubernetes_refusals import refusal
from sparktrain.cluster.spark_facts import FAILURES_KEY, YARN
from sparktrain.errors import InfraError, SessionError, SparktrainError
from sparktrain.store.held_folders import held

CONNECT_S = 5.0
"""The timeout for one address."""
_PORTS = {"spark": 7077, "k8s": 443}
_HOST_AND_PORT = re.compile(r"(?:https?://)?(?P<host>\[[^\]]+\]|[^:/\[\]]+)(?::(?P<port>\d+))?/?")
_PATIENCE = {FAILURES_KEY: "1000", "spark.executor.maxNumFailures": "1000"}
"""How many containers an application of ours may lose: it has nothing but agents, which can be replaced."""
_PATIENCE_WITH_PODS = {**_PATIENCE, "spark.executor.maxNumFailures": "1000000"}
"""On Kubernetes, where Spark counts each pod that a quota refuses too, and retries each second."""
_OF_PY4J = "An error occurred while calling "
"""The start of a line before the one with the cause."""
DEFAULT_MASTER = "local-cluster[2,1,2048]"

FAST_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""Half the work to start a JVM that does little: one compiler, and no threads for garbage collection."""
CLASSES = "spark-classes.jsa"
"""The file of `make classes` in the environment's folder: Spark's classes as a JVM has them in memory."""
_LOCAL_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}

logger = logging.getLogger("sparktrain")


@contextmanager
def local_session(
    master: str | None, conf: Mapping[str, str], name: str, show: Callable[[str], None] = lambda line: None
) -> Iterator[SparkSession]:
    """The session of `spark-submit`, or one on `master`, stopped at the end of the block. Blocks while Spark starts.

    `show` gets a line for people before Spark starts, and at the end one that names Spark's log, if that has errors;
    the log is a file where sparktrain starts the JVM and the user has not configured it. Without `master` and outside
    of `spark-submit`, the session is a cluster of two executor processes on this machine. Raises SessionError when
    Spark cannot start.
    """
    with held("spark") as folder:
        scratch = str(folder)
        if not is_submitted():
            show(f"starting Spark on {master or DEFAULT_MASTER} ...")
        session = _session(master, conf, name, scratch)
        failed = False
        try:
            jvm.log_to_file_alone(session, scratch)
            yield session
        except InfraError:
            failed = True
            raise
        finally:
            line = jvm.kept_log(scratch, failed=failed)  # without the errors that Spark logs while it stops
            jvm.hush_end(session)
            session.stop()
            if line is not None:
                show(line)


@contextmanager
def program_session(master: str | None, conf: Mapping[str, str], name: str) -> Iterator[SparkSession]:
    """`local_session` for a program, which logs what that shows. Raises SessionError also where Spark runs already."""
    context_class: Any = SparkContext  # without types
    if context_class._active_spark_context is not None:
        raise SessionError(
            "session() starts Spark, and this process has an active SparkSession already: pass that one as spark=, or "
            "stop it first"
        )
    with local_session(master, conf, name, logger.info) as spark:
        yield spark


def _session(master: str | None, conf: Mapping[str, str], name: str, scratch: str) -> SparkSession:
    submitted = is_submitted()
    try:
        if submitted:
            merged_conf = {**_submitted(), **conf}
            _check_cluster(master, merged_conf)
            # A lost container counts as a failed task, and the fourth one of a slot would end the agents' job.
            patience = _patience(master or merged_conf.get("spark.master", ""))
            settings = {**_absent(patience, merged_conf), **conf}
        else:
            master = master or DEFAULT_MASTER
            _check_home()
            check_reachable(master)
            settings = {**_patience(master), **_session_defaults(master, scratch), **conf}
        settings = {"spark.app.name": name, **settings} | ({"spark.master": master} if master is not None else {})
        # Before PySpark would: the JVM that it starts prints seven lines, and nothing can take them back.
        if not submitted:
            jvm.start(settings, scratch)
        builder = SparkSession.builder
        for key, value in settings.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()
    except SparktrainError:
        raise
    except Exception as error:  # Py4J, Spark and PySpark's own errors have no common root
        raise SessionError(_problem(master or "spark-submit", error)) from error


def _check_home() -> None:
    """Raises SessionError for a `SPARK_HOME` that is no Spark 4: PySpark finds none of its classes there."""
    home = os.environ.get("SPARK_HOME")
    for core in Path(home, "jars").glob("spark-core_*.jar") if home else ():
        version = core.stem.split("-")[2]
        if not is_supported(version):
            raise SessionError(
                f"SPARK_HOME ({home}) is Spark {version}, and PySpark is {pyspark.__version__}: name a Spark 4, or "
                "unset SPARK_HOME, and PySpark starts the Spark that came with it"
            )


def _patience(master: str) -> Mapping[str, str]:
    return _PATIENCE_WITH_PODS if master.startswith("k8s") else _PATIENCE


def _absent(defaults: Mapping[str, str], conf: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in defaults.items() if key not in conf}


def _problem(where: str, error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return (
            f"no Spark session on {where}: this machine does not know the address of a name ({error.strerror}); "
            f"localhost and its own name, {socket.gethostname()}, each need a line in /etc/hosts"
        )
    if (refused := refusal(str(error))) is not None:
        return f"no Spark session on {where}: Kubernetes refuses what it needs: {refused.text}"
    lines = [line.removeprefix(": ") for line in str(error).splitlines() if not line.startswith(_OF_PY4J)]
    problem = next(iter(lines), type(error).__name__)
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        user = f"user {os.geteuid()} of this process"
        return f"no Spark session on {where}: {problem}; give {user} a line in /etc/passwd, which Java's login needs"
    return f"no Spark session on {where}: {problem}; check that Java 17 is installed and that the master runs"


def jvm_here(environment: Path = Path(sys.prefix)) -> str:
    """Options for JVMs on this machine: with the stored classes, if they exist, a JVM starts with half the work.

    A JVM of another Java than they were stored for loads its classes one by one, without a message.
    """
    stored = environment / CLASSES
    return f"{FAST_JVM} -XX:SharedArchiveFile={shlex.quote(str(stored))}" if stored.exists() else FAST_JVM


def _submitted() -> dict[str, str]:
    """The configuration of `spark-submit`."""
    SparkContext._ensure_initialized()  # the JVM, which spark-submit has started, knows it
    return dict(SparkConf().getAll())


def _check_cluster(master: str | None, settings: Mapping[str, str]) -> None:
    """Check YARN before the session starts: it ends an application that requests too much, and this process with it."""
    if (master or settings.get("spark.master")) == YARN:
        yarn_client.check(settings)


def _session_defaults(master: str, scratch: str) -> dict[str, str]:
    """The defaults of a session of our own on `master`."""
    # Executors would run the first python3 of the path, which may lack what this environment has.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not master.startswith("local"):
        return {"spark.ui.showConsoleProgress": "false", **_driver_host(master)}
    # Workers announce the address of a network interface otherwise.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_WORKER_DIR", scratch)  # local-cluster would write into site-packages
    return {
        **_LOCAL_CONF,
        "spark.driver.extraJavaOptions": jvm_here(),
        "spark.executor.extraJavaOptions": jvm_here(),
    }


def _driver_host(master: str) -> dict[str, str]:
    """The driver's address for pods: Spark would take the name of this machine or pod, which they cannot resolve."""
    scheme, _, place = master.partition("://")
    match = _HOST_AND_PORT.fullmatch(place) if scheme == "k8s" else None
    if match is None:
        return {}
    address = address_towards(match["host"].strip("[]"), int(match["port"] or _PORTS[scheme]))
    return {driver_address.SPARK_HOST_KEY: address} if address is not None else {}


def check_reachable(master: str, connect: Callable[[str, int], None] | None = None) -> None:
    """Raises SessionError when no address of `master` can be connected to. Blocks, for some seconds at most.

    Local masters and YARN have no address here.
    """
    scheme, marked, addresses = master.partition("://")
    if not marked or scheme not in _PORTS:
        return
    problems = []
    for place in addresses.split(","):
        match = _HOST_AND_PORT.fullmatch(place)
        if match is None:
            raise SessionError(f"{master} is not a valid master: write {scheme}://HOST:{_PORTS[scheme]}")
        try:
            (connect or _connect)(match["host"].strip("[]"), int(match["port"] or _PORTS[scheme]))
            return
        except socket.gaierror:
            problems.append(f"the host name {match['host']!r} is unknown on this machine")
        except OSError as error:
            problems.append(f"{place}: {error.strerror or error}")
    raise SessionError(
        f"the master {master} cannot be reached: {'; '.join(problems)}; correct --master, or start Spark there"
    )


def _connect(host: str, port: int) -> None:
    socket.create_connection((host, port), CONNECT_S).close()
