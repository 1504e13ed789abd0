"""A standalone Spark cluster on this machine that can lose workers permanently, as by node loss."""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from sparktrain.cluster.spark_session import jvm_here
from tests.support.local_spark import spark_home
from tests.support.processes import Sighted, descendants, wait_until

READY_S = 60.0
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_URL = re.compile(r"spark://[\d.]+:\d+")


class Standalone:
    """A master and workers, on addresses of this machine; an address is a host to Spark."""

    def __init__(
        self,
        folder: Path,
        hosts: Sequence[str],
        master: str = "127.0.0.1",
        enter: Sequence[Sequence[str]] = (),
        cores: int = 1,
    ) -> None:
        """`master` is the address of the master; `enter` has the words before the command of each worker, which has
        so many `cores`, and a GiB for each."""
        self._folder = folder
        self._hosts = hosts
        self._cores = str(cores), f"{cores}g"
        self._stack = ExitStack()
        self._enter = [*enter, *[()] * (len(hosts) - len(enter))]
        self._master = self._start(_MASTER, "master", "--port", "0", host=master)
        wait_until(lambda: _URL.search(self._log("master")), READY_S, "the master has started")
        [self.url, *_] = _URL.findall(self._log("master"))
        self._workers = [self._start_worker(number, host) for number, host in enumerate(hosts)]
        wait_until(
            lambda: self._log("master").count("Registering worker") == len(hosts), READY_S, "the workers register"
        )

    def lose(self, pid: int) -> None:
        """Kill the worker above the process, and everything that it started."""
        lost = {each.pid for each in psutil.Process(pid).parents()} & {each.pid for each in self._workers}
        for each in lost:
            _kill_all(each)

    def kill_worker(self, number: int) -> None:
        """Kill a worker, and everything that it started."""
        _kill_all(self._workers[number].pid)

    def start_worker(self, number: int) -> None:
        """Start a worker again that was killed. Returns at once: the master gives it executors when it registers."""
        self._workers[number] = self._start_worker(number, self._hosts[number])

    def close(self) -> None:
        """Kill master and workers."""
        self._stack.close()

    def _start_worker(self, number: int, host: str) -> "subprocess.Popen[bytes]":
        cores, memory = self._cores
        words = ["--cores", cores, "--memory", memory, "--work-dir", str(self._folder / f"work-{number}"), self.url]
        return self._start(_WORKER, f"worker-{number}", *words, host=host, enter=self._enter[number])

    def _start(
        self, program: str, name: str, *words: str, host: str, enter: Sequence[str] = ()
    ) -> "subprocess.Popen[bytes]":
        home = spark_home()
        line = [*enter, os.path.join(home, "bin", "spark-class"), program, "--host", host, "--webui-port", "0", *words]
        small = {"SPARK_DAEMON_JAVA_OPTS": jvm_here(), "SPARK_DAEMON_MEMORY": "256m"}
        env = {**os.environ, **small, "SPARK_HOME": home, "SPARK_LOCAL_IP": host}
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(line, env=env, stdout=log, stderr=log, cwd=self._folder)
        self._stack.callback(process.wait)
        self._stack.callback(_kill_all, process.pid)
        return process

    def _log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")


def _kill_all(pid: int) -> None:
    with suppress(psutil.NoSuchProcess):
        Sighted([pid, *(each.pid for each in descendants(pid))]).kill()


@contextmanager
def standalone(
    folder: Path,
    hosts: Sequence[str],
    master: str = "127.0.0.1",
    enter: Sequence[Sequence[str]] = (),
    cores: int = 1,
) -> Iterator[Standalone]:
    """A cluster with a worker on each host, an address of this machine, that is ready; killed at the end."""
    cluster = Standalone(folder, hosts, master, enter, cores)
    try:
        yield cluster
    finally:
        cluster.close()
