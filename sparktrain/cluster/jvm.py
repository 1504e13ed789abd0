"""The JVM of a Spark session that sparktrain creates itself: it logs into a file, on stderr until it has started."""

import os
import re
import shutil
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from sparktrain.base.formatting import count
from sparktrain.base.threads import spawn
from sparktrain.cluster.stderr_filter import pass_on

QUIET_LOG = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
rootLogger.appenderRef.stderr.level = error
rootLogger.appenderRef.file.ref = file
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
appender.file.type = File
appender.file.name = file
appender.file.fileName = SPARK_LOG
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n
"""
_LOG_FILE = "log4j2.properties"
_SPARK_LOG = "spark.log"
_ERROR = re.compile(r"[-\d]{10} [:\d]{8} (?:ERROR|FATAL) ")
_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Options of the JVM that starts next: a configuration key would replace the user's own options."""
NOISE = re.compile(
    rb"WARNING: Using incubator modules: jdk\.incubator\.vector|Setting default log level to \"|"
    rb"To adjust logging level use sc\.setLogLevel"
)
"""The start of lines that every JVM of Spark writes and no setting suppresses."""
EXPECTED = (
    r"(?s).*cancelled job tags sparktrain-.*"
    r"|Incomplete task interrupted: Attempting to kill Python Worker.*"
)
"""Spark's warnings when a closing pool cancels the tasks of agents that have not left. On local masters, the second
line comes from the same JVM for any cancelled task."""
LATE = r"Error while invoking RpcHandler#receive\(\) for one-way message.*"
"""The error that Spark logs, with a traceback, for a message that arrives while it stops."""
_LAST_LINES_S = 2.0
"""How long to wait for the last lines of a JVM that did not start."""

_HUSHED: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""Contexts that `hush` has treated."""


def start(settings: Mapping[str, str], scratch: str) -> None:
    """Start the JVM with `settings`, unless one runs. Blocks.

    The configuration of its log is in `scratch`, unless the user has one. Raises what PySpark raises where the JVM does
    not start; stderr then has the cause.
    """
    context_class: Any = SparkContext
    launch: Any = launch_gateway  # without types
    if context_class._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        conf.set(key, value)
    # A JVM writes to the stderr that it inherits, before any setting of its log counts: only a pipe can leave lines
    # out.
    reading, writing = os.pipe()
    ended = threading.Event()
    spawn(lambda: pass_on(reading, NOISE, _to_stderr, ended), "sparktrain-jvm")
    try:
        with _quiet_log(scratch):
            gateway = launch(conf, {"stderr": writing})
    except BaseException:
        os.close(writing)
        ended.wait(_LAST_LINES_S)
        raise
    os.close(writing)
    context_class._ensure_initialized(gateway=gateway)


def log_to_file_alone(session: Any, scratch: str) -> None:
    """Have Spark, which has started, log its errors no longer on stderr: only where `start` has configured its log."""
    context = getattr(session, "_sc", None)
    if context is not None and (Path(scratch) / _SPARK_LOG).exists():
        with suppress(Exception):  # as in `hush`
            logging = context._jvm.org.apache.logging.log4j.LogManager.getContext(False)
            # Errors of Spark appeared between the lines of a run's progress. Until it has started they explain why it
            # does not.
            logging.getConfiguration().getRootLogger().removeAppender("console")
            logging.updateLoggers()


def kept_log(scratch: str, *, failed: bool) -> str | None:
    """A line that names the log of Spark's driver, which survives `scratch`; None where it has no error.

    With `failed`, also a log of warnings alone is kept. Never raises: where the log cannot be kept, there is no line.
    """
    log = Path(scratch) / _SPARK_LOG
    try:
        with log.open(encoding="utf-8", errors="replace") as lines:
            errors = sum(_ERROR.match(line) is not None for line in lines)
        if not errors and not (failed and log.stat().st_size):
            return None
        handle, copy_path = tempfile.mkstemp(prefix="sparktrain-driver-", suffix=".log")
        os.close(handle)
        shutil.copyfile(log, copy_path)
    except OSError:
        return None
    return f"Spark logged {count(errors, 'error') if errors else 'warnings'} in the driver: {copy_path}"


def hush(session: Any) -> None:
    """Suppress Spark's output about the agents' job, in a session that may be the user's.

    Its progress bar, which would overwrite ours, ends, and Spark logs no warning for tasks that a closing pool ends.
    """
    context = getattr(session, "_sc", None)
    if context is None or context in _HUSHED:  # Spark Connect prints none of it here
        return
    with suppress(Exception):  # Py4J's errors have no common root, and a warning does no harm
        bar = context._jsc.sc().progressBar()
        if bar.isDefined():
            bar.get().stop()
        _drop(context._jvm, EXPECTED)
        _HUSHED.add(context)


def hush_end(session: Any) -> None:
    """Suppress Spark's errors while it stops, for messages of executors to parts that have stopped before them."""
    context = getattr(session, "_sc", None)
    if context is not None:
        with suppress(Exception):  # as above
            _drop(context._jvm, LATE)


def _drop(java: Any, pattern: str) -> None:
    """Have log4j drop messages that match `pattern`, for as long as the JVM lives."""
    log4j = java.org.apache.logging.log4j
    logging = log4j.LogManager.getContext(False)
    result = getattr(log4j.core, "Filter$Result")
    filters = log4j.core.filter.RegexFilter
    logging.getConfiguration().addFilter(filters.createFilter(pattern, None, False, result.DENY, result.NEUTRAL))
    logging.updateLoggers()


@contextmanager
def _quiet_log(scratch: str) -> Iterator[None]:
    """Have Spark log into a file of `scratch`, and errors on stderr too, unless the user has configured its log."""
    old_options = os.environ.get(_OPTIONS)
    if not _has_log():
        path = Path(scratch) / _LOG_FILE
        log = str(Path(scratch) / _SPARK_LOG)
        path.write_text(QUIET_LOG.replace("SPARK_LOG", log), encoding="utf-8")
        os.environ[_OPTIONS] = f"{old_options or ''} -Dlog4j2.configurationFile={path}".strip()
    try:
        yield
    finally:
        if old_options is not None:
            os.environ[_OPTIONS] = old_options
        else:
            os.environ.pop(_OPTIONS, None)


def _has_log() -> bool:
    """Whether the user has configured the log of Spark."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (os.path.join(home, "conf") if home else None)
    return folder is not None and os.path.exists(os.path.join(folder, _LOG_FILE))


def _to_stderr(line: bytes) -> None:
    with suppress(ValueError):  # it was closed
        os.write(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2, line)
