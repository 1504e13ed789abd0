"""Packages that an extra of sparktrain brings, and PySpark of a cluster: what needs a missing one names the extra."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from sparktrain.errors import SessionError, SpecError

_LEAST = 4
_BELOW = 5
"""Major versions of Spark that sparktrain works with: from the first on, below the second."""


def require_spark(subject: str) -> None:
    """Make PySpark importable: the installed one, or else that of the Spark in `SPARK_HOME`, as its own shell does.

    `subject` is what needs it, such as "sweep()". Imports PySpark, and changes `sys.path` for that of `SPARK_HOME`.
    Raises SessionError where there is none, and for another major version than 4.
    """
    home = None
    if not is_installed("pyspark"):
        home = _spark_home()
        if home is None:
            raise SessionError(
                f"{subject} needs PySpark, which is not installed: pip install 'sparktrain[spark]', or set SPARK_HOME "
                "to the Spark of your cluster; spark=sparktrain.local() (--local) trains on this machine without Spark"
            )
        sys.path[1:1] = _paths_of(home)
    import pyspark

    version = str(pyspark.__version__)
    if not is_supported(version):
        where = f" of SPARK_HOME ({home})" if home is not None else ""
        raise SessionError(
            f"{subject} needs PySpark {_LEAST}, and the one{where} is {version}: pip install 'sparktrain[spark]', or "
            "set SPARK_HOME to a Spark 4"
        )


def is_submitted() -> bool:
    """Whether `spark-submit` has started this process and provides its session."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def is_supported(version: str) -> bool:
    """Whether sparktrain works with this version of Spark, such as "4.3.0"."""
    return _LEAST <= int(version.partition(".")[0]) < _BELOW


_NAMES = {
    "jax": "JAX",
    "lightgbm": "LightGBM",
    "pandas": "pandas",
    "sklearn": "scikit-learn",
    "torch": "PyTorch",
    "xgboost": "XGBoost",
}
"""Packages with an extra of the same name, as messages name them."""


def require(package: str, subject: str) -> None:
    """Raise SpecError where `package`, one of `_NAMES`, is not installed. `subject` is what needs it: "to_pandas()"."""
    if not is_installed(package):
        raise SpecError(
            f"{subject} needs {_NAMES[package]}, which is not installed: pip install 'sparktrain[{package}]'"
        )


def require_tensorflow(subject: str, instead: str) -> None:
    """Raise SpecError where TensorFlow is not installed. `instead` is what to write for `subject` without it."""
    if not is_installed("tensorflow"):
        raise SpecError(
            f"{subject} needs TensorFlow, which is not installed in this process: {instead}, or install it on the "
            "executors: pip install 'sparktrain[tensorflow]'"
        )


def check_tensorboard(is_wanted: bool = True) -> bool:
    """Check that this process can start TensorBoard, where `is_wanted`, and return that. Raises SpecError."""
    if is_wanted and not is_installed("tensorboard"):
        raise SpecError(
            "tensorboard is not installed beside sparktrain in this driver's Python "
            f"({sys.executable}), and TensorFlow does not bring it: pip install 'sparktrain[tensorboard]'"
        )
    return is_wanted


def is_installed(package: str) -> bool:
    """Whether this process can import `package`, found without importing it. A program of the user may block it."""
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # of an import hook; of a module in `sys.modules` that has no spec
        return False


def _spark_home() -> Path | None:
    """The Spark that the user's environment names, if it has PySpark."""
    home = os.environ.get("SPARK_HOME")
    return Path(home) if home and (Path(home) / "python" / "pyspark" / "__init__.py").is_file() else None


def _paths_of(home: Path) -> list[str]:
    """What `bin/pyspark` of a Spark puts on the path of Python: PySpark, and Py4J as an archive."""
    python = home / "python"
    return [str(python), *(str(archive) for archive in sorted((python / "lib").glob("py4j-*-src.zip")))]
