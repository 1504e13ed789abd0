"""A client that submits a sweep of one short trial, and lives until it is killed.

    python -m benchmarks.leaving_client yarn CONF.json DIRECTORY NAME
    python -m benchmarks.leaving_client connect URL DIRECTORY NAME

It prints a line as it calls `submit`, and the run directory once that has returned.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sparktrain as st

CALLS = "calls"
"""The line that is printed as `submit` is called."""


@contextmanager
def session(kind: str, target: str) -> Iterator[Any]:
    """A session on YARN with the configuration in a file, or one of a Spark Connect server."""
    if kind == "yarn":
        with st.session("yarn", json.loads(Path(target).read_text())) as spark:
            yield spark
        return
    from pyspark.sql import SparkSession

    yield SparkSession.builder.remote(target).getOrCreate()


def main(kind: str, target: str, directory: str, name: str) -> None:
    """Submit, and wait."""

    def train(x: int) -> dict[str, float]:
        return {"y": 2.0 * x}

    with session(kind, target) as spark:
        print(CALLS, flush=True)
        handle = st.submit(
            train, {"x": [1]}, metric="y", mode="max", backend="none", preload=[], spark=spark, dir=directory,
            name=name, progress=False,
        )  # fmt: skip
        print(handle.directory, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
