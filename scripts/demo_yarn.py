"""Starts everything on one machine: HDFS and YARN, a sweep, and a gang that loses a container.

    make demo-yarn

Both train examples/fashion_mnist.py on the node labelled `gpu`, which has none, and keep all that they write in
HDFS. At the end all daemons have stopped. It takes about four minutes.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sparktrain.base.clock import SystemClock
from tests.support.hadoop import Hdfs, Yarn, fast_conf, hdfs, yarn
from tests.support.processes import wait_until

COMMAND = os.fspath(Path(sys.executable).with_name("sparktrain"))
TARGET = "examples/fashion_mnist.py:train"
RUNS = "hdfs:///runs"
GANG = f"{RUNS}/gang"
CHECKPOINT_TIMEOUT_S = 240.0
"""From the call to the first checkpoint of the gang."""
END_TIMEOUT_S = 240.0
"""From there, or from the call, to the end of a job."""
STOP_TIMEOUT_S = 30.0
CONF = {
    "spark.log.level": "ERROR",  # the lines of sparktrain would be lost among hundreds of Spark's
    "spark.executor.memoryOverhead": "1024m",  # two such executors fit the node
}


def main() -> None:
    clock = SystemClock()
    start = clock.now()
    with TemporaryDirectory(prefix="sparktrain-demo-") as folder, hdfs(Path(folder, "hdfs")) as files:
        with yarn(Path(folder, "yarn"), files) as cluster:
            announce(
                f"HDFS and YARN run after {clock.now() - start:.0f} s; node {cluster.labelled_node} has the label gpu"
            )
            properties = Path(folder, "spark.conf")
            properties.write_text("".join(f"{key} {value}\n" for key, value in (fast_conf(cluster) | CONF).items()))
            sweep(cluster, properties)
            gang(cluster, properties)
        show_files(files)
    announce(f"all daemons have ended, after {clock.now() - start:.0f} s")


def sweep(cluster: Yarn, properties: Path) -> None:
    """Two learning rates, side by side."""
    announce("a sweep of two trials, in client mode")
    grid = ["--grid", "learning_rate=0.1,0.01", "--grid", "dropout=0.2", "--metric", "accuracy"]
    with submitted(cluster, properties, "sweep", TARGET, *grid, "--dir", RUNS, "--name", "sweep") as process:
        check(process)


def gang(cluster: Yarn, properties: Path) -> None:
    """A ring of two members; one loses its container after the first checkpoint."""
    announce("a gang of two members on Horovod; one of its containers will be killed")
    params = ["--workers", "2", "--param", "learning_rate=0.01", "--param", "dropout=0.2", "--metric", "accuracy"]
    with submitted(cluster, properties, "run", TARGET, *params, "--dir", RUNS, "--name", "gang") as process:

        def saved() -> bool:
            return process.poll() is not None or checkpointed(cluster.env)

        wait_until(saved, CHECKPOINT_TIMEOUT_S, f"the first checkpoint in {GANG}")
        if process.poll() is None:
            kill_executor(cluster)
        check(process)


def kill_executor(cluster: Yarn) -> None:
    """The newest of the application that runs."""
    [application] = [each["id"] for each in cluster.applications() if each["state"] == "RUNNING"]
    containers = cluster.containers_of(application)
    executors = sorted(each for each, node in containers.items() if node == cluster.labelled_node)
    announce(f"there is a checkpoint; the executors are on {cluster.labelled_node}: {', '.join(executors)}")
    announce(f"the last one is killed: {executors[-1]}")
    cluster.kill_container(executors[-1])


@contextmanager
def submitted(cluster: Yarn, properties: Path, *job: str) -> "Iterator[subprocess.Popen[bytes]]":
    """`sparktrain submit` of a job, with this Python on the nodes, which are this machine; gone after the block."""
    line = [COMMAND, "submit", "--pack", "none", "--properties-file", os.fspath(properties), *job]
    process = subprocess.Popen(line, env={**os.environ, **cluster.env}, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(STOP_TIMEOUT_S)


def check(process: "subprocess.Popen[bytes]") -> None:
    """Wait for the end, which must be a good one."""
    try:
        code = process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        sys.exit(f"demo: the job has not ended {END_TIMEOUT_S:g} s later: is the machine busy? Its lines are above")
    if code != 0:
        sys.exit(f"demo: the job ended with {code}")


def checkpointed(env: Mapping[str, str]) -> bool:
    """Whether the gang has a checkpoint."""
    done = subprocess.run(
        [COMMAND, "status", GANG, "--json"], env={**os.environ, **env}, capture_output=True, check=False
    )
    run: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {"trials": []}
    return any(trial["checkpoint"] is not None for trial in run["trials"])


def show_files(files: Hdfs) -> None:
    """What is left in HDFS."""
    announce("in HDFS, beside logs and metrics:")
    paths = [Path(line) for line in files.cli("-ls", "-C", "-R", "/runs").splitlines()]
    kept = [path for path in paths if path.name in ("results.json", "model.keras") or path.name.startswith("manifest-")]
    print(*kept, sep="\n", flush=True)


def announce(text: str) -> None:
    """Print a line between the output of the jobs."""
    print(f"demo: {text}", flush=True)


if __name__ == "__main__":
    main()
