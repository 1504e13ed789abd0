"""What the Python of executors lacks, from what Spark says of a task that could not begin; and how to bring it.

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
    """What no agent can do without."""

    module: str | None
    """That cannot be imported; None where there is no Python at all."""
    program: str | None
    """That is not there."""
    host: str | None
    """Of the executor; None where Spark does not say."""


def missing_in(told: str) -> Missing | None:
    """From the whole text of Spark's error; None when nothing is known to be missing."""
    module, program, host = _MODULE.search(told), _PROGRAM.search(told), _HOST.search(told)
    if module is None and program is None:
        return None
    return Missing(module and module[1], program and program[1], host and host[1])


def package_of(module: str) -> str:
    """What brings a module, as `pip install` takes it: with the version that is installed here."""
    top = module.partition(".")[0]
    names = metadata.packages_distributions().get(top) or [top]
    try:
        return f"{names[0]}=={metadata.version(names[0])}"
    except metadata.PackageNotFoundError:
        return names[0]


def advice(missing: Missing, package: Callable[[str], str] = package_of) -> str:
    """What is missing, where, and the command that brings it."""
    where = f"the executor on host {missing.host}" if missing.host is not None else "an executor"
    if missing.module is None:
        return f"{where} has no Python at {missing.program}: name one of every node by spark.pyspark.python, {_PACK}"
    return (
        f"{where} cannot import {missing.module}: install it on every node, for the Python that executors run: "
        f"pip install '{package(missing.module)}'; {_PACK}"
    )
