"""Everything from nothing on one machine: HDFS and YARN, a sweep, and a gang of which a container is killed.

    make demo-yarn

Both train the clothes of examples/fashion_mnist.py on the node labelled `gpu`, which has none, and keep all that
they make in HDFS. At the end nothing runs any more.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sparktrain.clock import SystemClock
from sparktrain.testing.hadoop import Hdfs, Yarn, fast_conf, hdfs, yarn
from sparktrain.testing.processes import wait_until

COMMAND = os.fspath(Path(sys.executable).with_name("sparktrain"))
TARGET = "examples/fashion_mnist.py:train"
SWEEP, GANG = "hdfs:///runs/sweep", "hdfs:///runs/gang"
CHECKPOINT_TIMEOUT_S = 240.0


def main() -> None:
    clock = SystemClock()
    begun = clock.now()
    with TemporaryDirectory(prefix="sparktrain-demo-") as folder, hdfs(Path(folder, "hdfs")) as files:
        with yarn(Path(folder, "yarn"), files) as cluster:
            say(f"HDFS and YARN are there after {clock.now() - begun:.0f} s; {cluster.labelled_node} has the label gpu")
            properties = Path(folder, "spark.conf")
            properties.write_text("".join(f"{key} {value}\n" for key, value in fast_conf(cluster).items()))
            sweep(cluster, properties)
            gang(cluster, properties)
        show_files(files)
    say(f"all daemons have ended, after {clock.now() - begun:.0f} s")


def sweep(cluster: Yarn, properties: Path) -> None:
    """Two learning rates, side by side."""
    say("a sweep of two trials, in client mode")
    grid = ["--grid", "learning_rate=0.1,0.01", "--grid", "dropout=0.2", "--metric", "accuracy"]
    with submitted(cluster, properties, "sweep", TARGET, *grid, "--dir", "hdfs:///runs", "--name", "sweep") as process:
        check(process)


def gang(cluster: Yarn, properties: Path) -> None:
    """A ring of two members, one of which loses its container after the first checkpoint."""
    say("a gang of two members on Horovod; one of its containers will be killed")
    params = ["--workers", "2", "--param", "learning_rate=0.01", "--param", "dropout=0.2", "--metric", "accuracy"]
    with submitted(cluster, properties, "run", TARGET, *params, "--dir", "hdfs:///runs", "--name", "gang") as process:

        def saved() -> bool:
            return process.poll() is not None or checkpointed(cluster.env)

        wait_until(saved, CHECKPOINT_TIMEOUT_S, f"the first checkpoint in {GANG}")
        [application] = [each["id"] for each in cluster.applications() if each["state"] == "RUNNING"]
        containers = cluster.containers_of(application)
        members = sorted(each for each, node in containers.items() if node == cluster.labelled_node)
        say(f"executors are on {cluster.labelled_node} alone: {', '.join(members)}; the last one is killed now")
        cluster.kill_container(members[-1])
        check(process)
    subprocess.run([COMMAND, "status", GANG], env={**os.environ, **cluster.env}, check=True)


def submitted(cluster: Yarn, properties: Path, *job: str) -> "subprocess.Popen[bytes]":
    """`sparktrain submit` of a job, with this Python on the nodes, which are this machine."""
    line = [COMMAND, "submit", "--pack", "none", "--properties-file", os.fspath(properties), *job]
    return subprocess.Popen(line, env={**os.environ, **cluster.env}, stdin=subprocess.DEVNULL)


def check(process: "subprocess.Popen[bytes]") -> None:
    """Wait for the end, which must be a good one."""
    if process.wait() != 0:
        sys.exit(f"the job ended with {process.returncode}")


def checkpointed(env: Mapping[str, str]) -> bool:
    """Whether the gang has a checkpoint."""
    told = subprocess.run(
        [COMMAND, "status", GANG, "--json"], env={**os.environ, **env}, capture_output=True, check=False
    )
    run: dict[str, Any] = json.loads(told.stdout) if told.returncode == 0 else {"trials": []}
    return any(trial["checkpoint"] is not None for trial in run["trials"])


def show_files(files: Hdfs) -> None:
    """What is left in HDFS."""
    say("in HDFS:")
    print(files.cli("-ls", SWEEP, GANG), flush=True)


def say(text: str) -> None:
    """A line between what the jobs say."""
    print(f"demo: {text}", flush=True)


if __name__ == "__main__":
    main()
