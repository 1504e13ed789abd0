"""The Python of executors on this machine: the driver's own, or one of the same version that the user names."""

import subprocess
import sys
from functools import cache

from pyspark.sql import SparkSession

from sparktrain.cluster.spark_facts import Facts
from sparktrain.errors import EnvironmentMismatchError

VARIABLE = "PYSPARK_PYTHON"
UNNAMED = "python3"
"""What Spark runs where `PYSPARK_PYTHON` is not set: the first one on the path."""
ANSWER_TIMEOUT_S = 30.0
_VERSION_CODE = "import sys; print('%d.%d' % sys.version_info[:2])"


def settle_python(session: SparkSession, facts: Facts) -> None:
    """Have executors of a local master run this Python, unless the user names another. Blocks while that one starts.

    Raises EnvironmentMismatchError when its version differs from the driver's or it cannot run: Spark would report that
    only after some tasks have failed. On a cluster, and with Connect, agents send their versions when they join.
    """
    context = getattr(session, "_sc", None)
    if context is None or not facts.master.startswith("local"):
        return
    if context.pythonExec == UNNAMED:
        context.pythonExec = sys.executable
    elif context.pythonExec != sys.executable:
        _check(context.pythonExec)


def _check(python: str) -> None:
    expected = f"{sys.version_info.major}.{sys.version_info.minor}"
    step = f"unset {VARIABLE}, or set it to {sys.executable}"
    try:
        actual = _version(python)
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentMismatchError(
            f"the Python of executors, {VARIABLE} ({python}), cannot be run: {error}; {step}, before you create "
            "the session"
        ) from error
    if actual != expected:
        raise EnvironmentMismatchError(
            f"executors run Python {actual} ({VARIABLE} is {python}) and the driver runs Python {expected} "
            f"({sys.executable}): {step}, before you create the session"
        )


@cache
def _version(python: str) -> str:
    command = [python, "-c", _VERSION_CODE]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=ANSWER_TIMEOUT_S).stdout.strip()
