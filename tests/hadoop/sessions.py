"""A Spark session of this process on a YARN of tests, and calls that run beside the test."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.support.hadoop import Yarn, fast_conf
from tests.support.local_spark import spark_session


@contextmanager
def yarn_session(cluster: Yarn, scratch: Path, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session on the cluster, in client mode; `conf` goes before `fast_conf`. Blocks for about 15 s.

    A JVM knows its cluster from its start: the one that this process has ends before, and that of the session after.
    """
    end_jvm()
    with pytest.MonkeyPatch.context() as environment:
        for name, value in cluster.env.items():
            environment.setenv(name, value)
        try:
            with spark_session("yarn", scratch, {**fast_conf(cluster), **conf}) as spark:
                yield spark
        finally:
            end_jvm()


def end_jvm() -> None:
    """End the JVM of this process' Spark, if there is one."""
    known: Any = SparkContext
    gateway, known._gateway, known._jvm = known._gateway, None, None
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # it ends with its input
        gateway.proc.wait()


class BackgroundCall:
    """One call in a thread of its own, followed like a command. Its methods belong to one thread."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, name="call", daemon=True)
        self._thread.start()

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 0 when it has returned, and 1 when it has raised."""
        return None if self._thread.is_alive() else int(self.error is not None)

    @property
    def output(self) -> str:
        """What it raised."""
        return repr(self.error)

    def wait(self, timeout_s: float) -> int:
        """Wait for the end; the exit code. AssertionError after `timeout_s`."""
        self._thread.join(timeout_s)
        code = self.exit_code
        assert code is not None, f"the call has not ended within {timeout_s:g} s"
        return code

    def _run(self) -> None:
        try:
            self.result = self._work()
        except BaseException as error:
            self.error = error
