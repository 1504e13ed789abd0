"""Starts a Spark on several hosts of this machine, and trains on it from a client that no host can connect to.

    make demo-connect

A master, two workers and a Spark Connect server run in network namespaces of their own, and the client in another one
that drops every inbound connection. HDFS has the runs. The client sweeps, and submits a gang; then it is killed, the
executor of the coordinator is killed, and another process attaches and prints the result. It takes about three minutes,
and needs root.
"""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from sparktrain.base.clock import SystemClock, pause
from sparktrain.runs.locate import place_of
from tests.support.far_cluster import FarCluster, far_cluster
from tests.support.process_cluster import COORDINATOR
from tests.support.processes import wait_until

COMMAND = os.fspath(Path(sys.executable).with_name("sparktrain"))
TRAINS_S = 180.0
ENDS_S = 240.0


def main() -> None:
    clock = SystemClock()
    start = clock.now()
    with TemporaryDirectory(prefix="sparktrain-demo-") as folder, far_cluster(Path(folder)) as cluster:
        announce(f"workers, Connect server and client are on hosts of their own after {clock.now() - start:.0f} s")
        gang = f"{cluster.runs}/gang"
        log = Path(folder, "client.log")
        client = cluster.start_client([sys.executable, "-m", "scripts.demo_client", cluster.url, cluster.runs], log)
        wait_until(lambda: client.poll() is not None or trains(gang), TRAINS_S, "the gang trains")
        announce("the client has made a sweep, and submitted a gang; its lines:")
        print(log.read_text(), flush=True)
        client.kill()
        client.wait()
        announce("the client is killed")
        kill_executor()
        attach(cluster, gang, Path(folder, "attached.log"))
        announce(f"hosts tried to connect to the client {cluster.refused()} times, and reached it 0 times")
    announce(f"everything has ended, after {clock.now() - start:.0f} s")


def trains(directory: str) -> bool:
    """Whether a coordinator of the run has recorded that trials run."""
    run = place_of(directory)
    return sum(name.startswith("batch-") for name in run.store.entries(run.layout.journal.path)) >= 3


def kill_executor() -> None:
    """Kill one of the executors that have a coordinator."""
    pause(3.0)
    for process in psutil.process_iter(["cmdline"]):
        if COORDINATOR in (process.info["cmdline"] or ()):
            executor = next((parent for parent in process.parents() if parent.name() == "java"), None)
            if executor is not None:
                announce(f"the executor of a coordinator is killed: process {executor.pid}")
                executor.kill()
                return


def attach(cluster: FarCluster, directory: str, log: Path) -> None:
    """Wait for a run from a fresh process on the host of the client, and print what it prints."""
    process = cluster.start_client([COMMAND, "attach", directory], log)
    code = process.wait(ENDS_S)
    announce(f"sparktrain attach {directory} ends with {code}:")
    print(log.read_text(), flush=True)


def announce(text: str) -> None:
    """Print a line between the output of the client."""
    print(f"demo: {text}", flush=True)


if __name__ == "__main__":
    main()
