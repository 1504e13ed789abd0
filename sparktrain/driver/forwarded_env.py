"""Variables of the driver's environment that the user forwards to trials."""

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase

from sparktrain.config.environment import may_be_set, patterns, variables
from sparktrain.errors import SpecError

SECRETS = ("HADOOP_TOKEN_FILE_LOCATION", "PYSPARK_*", "_PYSPARK_*", "_SPARK_*", "SPARK_*", "PYTHON_WORKER_FACTORY_*")
"""Variables of the driver's own Spark, or that lead to tokens: no pattern forwards them."""


def environment(env: object, forward_env: object) -> dict[str, str]:
    """Environment variables of trials: those that `forward_env` names, and `env`, which overrides them.

    Raises SpecError.
    """
    return {**_forwarded(patterns(forward_env)), **variables(env)}


def _forwarded(named: Sequence[str]) -> dict[str, str]:
    """Those that any of `named` names. Raises SpecError for a name that is not set, or that leads to Spark."""
    forwarded: dict[str, str] = {}
    for pattern in named:
        if not pattern.endswith("*"):
            forwarded[pattern] = _named(pattern)
            continue
        # A pattern such as `*` must not carry the driver's tokens and gateway secrets into logs of trials.
        names = [name for name in os.environ if fnmatchcase(name, pattern) and may_be_set(name) and not _secret(name)]
        forwarded |= {name: os.environ[name] for name in names}
    return forwarded


def _named(name: str) -> str:
    if _secret(name):
        raise SpecError(f"forward_env ({name!r}) belongs to Spark, or leads to its secrets: leave it out")
    if name not in os.environ:
        raise SpecError(f"forward_env ({name!r}) is not set in the driver's environment: set it, or leave it out")
    return os.environ[name]


def _secret(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in SECRETS)
