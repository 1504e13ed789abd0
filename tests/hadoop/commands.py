"""Calls `sparktrain submit` like a user with a PYSPARK_PYTHON in the environment."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.hadoop import Yarn, fast_conf
from tests.support.processes import kill, wait_until

TRAINING = ("sparktrain[hdfs,tensorflow,horovod]",)
"""The packages of the pack with both rings."""
TRAINING_PACKS = "training-packs"
"""The folder of HDFS that it is in."""
SMALL = ("sparktrain[hdfs]",)
"""The packages of a pack a quarter as large, without TensorFlow."""
SMALL_PACKS = "packs"
"""The folder of HDFS that it is in."""

_APPLICATION = re.compile(r"\bapplication_\d+_\d+\b")


class Command:
    """One call, which follows its application."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        self._process = process
        self._folder = folder

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    @property
    def stdout(self) -> str:
        """The output on stdout."""
        return (self._folder / "stdout").read_text()

    @property
    def stderr(self) -> str:
        """The output on stderr."""
        return (self._folder / "stderr").read_text()

    @property
    def output(self) -> str:
        """The output on stderr and stdout."""
        return self.stderr + self.stdout

    @property
    def application(self) -> str | None:
        """The id of its application, once it has been printed."""
        found = _APPLICATION.search(self.stderr)
        return found[0] if found is not None else None

    def wait(self, timeout_s: float) -> int:
        """Wait for the end; the exit code. AssertionError after `timeout_s`."""
        wait_until(lambda: self.exit_code is not None, timeout_s, "sparktrain submit has ended")
        assert self.exit_code is not None
        return self.exit_code


def kill_driver(application: str | None) -> None:
    """SIGKILL to the JVM of the first application master of `application_1_0001`, in which the driver is."""
    assert application is not None
    epoch = r"(?:e\d+_)?"  # after a restart of the ResourceManager
    master = re.compile(application.replace("application_", f"container_{epoch}") + r"_01_000001\b")
    processes = psutil.process_iter(["name", "cmdline"])
    # A process that ends while it is read has no command line.
    javas = (process for process in processes if process.info["name"] == "java")
    [driver] = [java for java in javas if master.search(" ".join(java.info["cmdline"] or ()))]
    kill(driver.pid)


@contextmanager
def command(cluster: Yarn, folder: Path, *words: str, **conf: str) -> Iterator[Command]:
    """A call with these words in a folder of its own, which is made; it is ended with its application in any case."""
    folder.mkdir()
    fast = {key: value for key, value in fast_conf(cluster).items() if "PYSPARK_PYTHON" not in key}
    properties = folder / "spark.conf"
    properties.write_text("".join(f"{key} {value}\n" for key, value in {**fast, **conf}.items()))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    line = [sys.executable, "-m", "sparktrain", "submit", "--properties-file", str(properties), *words]
    with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(line, env={**env, **cluster.env}, cwd=folder, stdout=stdout, stderr=stderr)
    made = Command(process, folder)
    try:
        yield made
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
            if made.application is not None:
                cluster.kill_application(made.application)
