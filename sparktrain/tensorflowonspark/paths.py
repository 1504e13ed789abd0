"""Paths as TensorFlowOnSpark resolves them: by the default file system of Hadoop, and not by the driver's folder."""

import getpass
import os
import re
from typing import Any

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_OF_HADOOP = ("hdfs://", "viewfs://")
LOCAL = "file://"


def absolute_path(path: str, default_fs: str, working_dir: str, user: str | None = None) -> str:
    """The URL of `path`: itself with a scheme, beneath `default_fs` with a slash in front, and else relative.

    A relative path is beneath the home of `user`, by default of this process, in HDFS and ViewFs, and beneath
    `working_dir` elsewhere.
    """
    base = default_fs
    while base.endswith("/") and not base.endswith("://"):
        base = base[:-1]
    if _SCHEME.match(path):
        return path
    if path.startswith("/"):
        return f"{base}{path}"
    if base.startswith(_OF_HADOOP):
        return f"{base}/user/{user or getpass.getuser()}/{path}"
    return f"{base}{working_dir}/{path}"


def default_fs(session: Any) -> str:
    """The default file system of the Hadoop configuration of a session or SparkContext; this machine's with Connect.

    Raises what PySpark raises for a session that is stopped.
    """
    context = session if hasattr(session, "_jsc") else getattr(session, "_sc", None)
    if context is None:  # a client of Connect has no Hadoop configuration
        return LOCAL
    uri = context._jsc.hadoopConfiguration().get("fs.defaultFS")
    return LOCAL if uri is None or uri.startswith("file:") else str(uri)


def path_for(session: Any, path: str) -> str:
    """The URL of `path` for a session of this process."""
    return absolute_path(path, default_fs(session), os.getcwd())
