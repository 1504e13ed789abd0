"""Starts everything on one machine: a Kubernetes of two nodes, a sweep, a gang that loses a pod, and a lack of memory.

    make demo-kubernetes

Sweep and gang train examples/fashion_mnist.py in pods of nodes with the label `accelerator=gpu`; each pod holds one of
their GPUs, which are plain files. At the end all daemons have stopped. It takes about five minutes, and needs root.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sparktrain.base.clock import SystemClock
from tests.support.kubernetes import GPU, Kubernetes, NodeSpec, Submission, kubernetes, submission
from tests.support.processes import wait_until

ROOT = Path(__file__).parents[1]
COMMAND = os.fspath(Path(sys.executable).with_name("sparktrain"))
TARGET = f"{ROOT}/examples/fashion_mnist.py:train"
CHECKPOINT_TIMEOUT_S = 240.0
"""From the call to the first checkpoint of the gang."""
END_TIMEOUT_S = 300.0
"""From there, or from the call, to the end of a job."""
NODES = [
    NodeSpec(name="node-a", labels={"accelerator": "gpu"}, gpus=2),
    NodeSpec(name="node-b", labels={"accelerator": "gpu"}, gpus=2),
]
CONF = {
    "spark.log.level": "ERROR",  # the lines of sparktrain would be lost among hundreds of Spark's
    "spark.decommission.enabled": "true",
    "spark.kubernetes.executor.node.selector.accelerator": "gpu",
    "spark.executor.resource.gpu.amount": "1",
    "spark.executor.resource.gpu.vendor": "nvidia.com",
    "spark.executor.resource.gpu.discoveryScript": f"{ROOT}/conf/gpu-discovery.sh",
    "spark.executorEnv.SPARKTRAIN_GPU_ADDRESSES": "0",
}
HUNGRY = """\
def train(mebibytes):
    held = b"x" * (mebibytes << 20)
    return {"held": len(held) >> 20}
"""


def main() -> None:
    clock = SystemClock()
    start = clock.now()
    with TemporaryDirectory(prefix="sparktrain-demo-") as folder:
        with kubernetes(Path(folder, "cluster"), NODES) as cluster:
            announce(f"Kubernetes stands after {clock.now() - start:.0f} s:")
            print(cluster.kubectl("get", "nodes", f"--output=custom-columns={columns()}"), flush=True)
            sweep(cluster)
            gang(cluster)
            hungry_sweep(cluster)
        announce(f"all daemons have ended, after {clock.now() - start:.0f} s")


def columns() -> str:
    """What is shown of nodes."""
    gpus = GPU.replace(".", r"\.")
    return f"NODE:.metadata.name,ACCELERATOR:.metadata.labels.accelerator,GPUS:.status.allocatable.{gpus}"


def sweep(cluster: Kubernetes) -> None:
    """Two learning rates, side by side."""
    announce("a sweep of two trials, a pod each")
    grid = ("--grid", "learning_rate=0.1,0.01", "--grid", "dropout=0.2", "--grid", "epochs=2", "--metric", "accuracy")
    with job(cluster, "grid_search.py", TARGET, *grid, "--name", "sweep") as submitted:
        check(submitted)


def gang(cluster: Kubernetes) -> None:
    """A ring of two members; the pod of one is deleted after the first checkpoint."""
    announce("a gang of two members on Horovod; one of its pods will be deleted")
    params = ("--workers", "2", "--param", "learning_rate=0.01", "--param", "dropout=0.2", "--metric", "accuracy")
    with job(cluster, "run_gang.py", TARGET, *params, "--name", "gang") as submitted:

        def saved() -> bool:
            return submitted.exit_code is not None or checkpointed(cluster.shared / "gang")

        wait_until(saved, CHECKPOINT_TIMEOUT_S, "the first checkpoint of the gang")
        if submitted.exit_code is None:
            pods = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in submitted.executors}
            announce(f"there is a checkpoint; its pods are {', '.join(f'{pod} on {at}' for pod, at in pods.items())}")
            announce(f"the last one is deleted: {max(pods)}")
            cluster.delete_pod(max(pods))
        check(submitted)


def hungry_sweep(cluster: Kubernetes) -> None:
    """One of its trials needs more memory than its pod may have."""
    announce("a sweep of two trials; the second one holds 3,000 MiB, in a pod of 2,048")
    module = cluster.shared / "hungry.py"
    module.write_text(HUNGRY)
    words = ("--grid", "mebibytes=100,3000", "--metric", "held", "--mode", "max", "--name", "hungry")
    with job(cluster, "grid_search.py", f"{module}:train", *words) as submitted:
        check(submitted, statuses=(0, 1))


@contextmanager
def job(cluster: Kubernetes, program: str, *words: str) -> Iterator[Submission]:
    """A program of jobs/ in client mode; gone after the block, and its pods with it."""
    with submission(cluster, ROOT / "jobs" / program, *words, "--dir", os.fspath(cluster.shared), conf=CONF) as job:
        follow = ["tail", "--follow", "--lines=+1", f"--pid={job.pid}", os.fspath(job.log)]
        with subprocess.Popen(follow) as tail:
            yield job
            tail.wait(END_TIMEOUT_S)


def check(submitted: Submission, statuses: tuple[int, ...] = (0,)) -> None:
    """Wait for the end, which must be one of these."""
    code = submitted.wait(END_TIMEOUT_S)
    if code not in statuses:
        sys.exit(f"demo: the job ended with {code}: its lines are above")


def checkpointed(run: Path) -> bool:
    """Whether the gang has a checkpoint."""
    done = subprocess.run([COMMAND, "status", os.fspath(run), "--json"], capture_output=True, check=False)
    status: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {"trials": []}
    return any(trial["checkpoint"] is not None for trial in status["trials"])


def announce(text: str) -> None:
    """Print a line between the output of the jobs."""
    print(f"demo: {text}", flush=True)


if __name__ == "__main__":
    main()
