"""What the Python of executors lacks, by Spark's report of a task that could not start, and how to install it.

Pure, but for `package_of`.
"""

import re
from collections.abc import Callable
from importlib import metadata

from msgspec import Struct

_MODULE = re.compile(r"No module named '([\w.]+)'")
_PROGRAM = re.compile(r"Cannot run program \"([^\"]+)\"")
_HOST = re.compile(r"\(TID \d+\) \(([^ )]+) executor")
_PACK = "or have executors run from a pack, for which nodes need nothing: sparktrain submit --pack auto"


class Missing(Struct, frozen=True):
    """What an executor lacks and every agent needs."""

    module: str | None
    """The module that cannot be imported; None where there is no Python at all."""
    program: str | None
    """The Python that does not exist; None where a module is missing."""
    host: str | None
    """The host of the executor; None where Spark does not report it."""


def missing_in(error: str) -> Missing | None:
    """What the whole text of Spark's error names as missing; None when it names nothing."""
    module = _MODULE.search(error)
    program = _PROGRAM.search(error)
    host = _HOST.search(error)
    if module is None and program is None:
        return None
    return Missing(module and module[1], program and program[1], host and host[1])


def package_of(module: str) -> str:
    """The requirement for `pip install` that provides a module: its package, in the version installed here."""
    top = module.partition(".")[0]
    names = metadata.packages_distributions().get(top) or [top]
    try:
        return f"{names[0]}=={metadata.version(names[0])}"
    except metadata.PackageNotFoundError:
        return names[0]


def advice(missing: Missing, package: Callable[[str], str] = package_of) -> str:
    """What is missing, where, and the command that installs it."""
    where = f"the executor on host {missing.host}" if missing.host is not None else "an executor"
    if missing.module is None:
        return f"{where} has no Python at {missing.program}: name one of every node by spark.pyspark.python, {_PACK}"
    return (
        f"{where} cannot import {missing.module}: install it on every node, for the Python that executors run: "
        f"pip install '{package(missing.module)}'; {_PACK}"
    )
