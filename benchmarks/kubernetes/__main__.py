"""The same job on a Kubernetes of two nodes, which this machine is, and on Spark's local cluster of three executors.

    python -m benchmarks.kubernetes [--rounds 5]

Overhead of an isolated trial, the first step of a gang of two on warm executors, and the time from the loss of a member
to the next step of all, with an agent that is idle: with notice (its pod is deleted; on the local cluster its agent is
drained), and without (its pod is deleted without a grace period; there its executor is killed). Needs root and
`make kubernetes`.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.machine import at_most, show
from sparktrain.cluster.spark_session import jvm_here
from sparktrain.runs.additions.drain_requests import drain
from sparktrain.runs.locate import run_in
from tests.support.hadoop.java import java_home
from tests.support.kubernetes import NodeSpec, kubernetes, submission
from tests.support.local_spark import spark_home
from tests.support.processes import wait_until
from tests.support.spark_submit import SparkSubmit

JOB = Path(__file__).with_name("measured_job.py")
TIMEOUT_S = 900.0
NODES = [NodeSpec(name="node-a"), NodeSpec(name="node-b")]
IN_PODS = {"spark.executor.instances": "3", "spark.decommission.enabled": "true", "spark.log.level": "ERROR"}
LOCALLY = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": jvm_here(),
    "spark.executor.extraJavaOptions": jvm_here(),
}

FIGURES = (
    ("a trial of 50 ms, beyond these", "trial_ms", "ms", 1.1),
    ("the first step of a gang on warm executors", "first_step_s", "s", 1.15),
    ("a loss with notice, to the next step", "notice", "s", 1.1),
    ("a loss without notice, to the next step", "kill", "s", 1.1),
)
"""Each with the limit of the ratio."""
NOTICE_TARGET_S = 3.0
MASTER = "local-cluster[3,1,1024]"

Strike = Callable[[Mapping[str, Any], Path], None]


def serve(folder: Path, strike: Strike) -> None:
    """Carry out the loss that the job has asked for, and note when."""
    for request in folder.glob("*/strike"):
        asked = json.loads(request.read_text())
        request.unlink()
        (request.parent / "struck").write_text(repr(time.time()))
        strike(asked, request.parent)


def measured(job: SparkSubmit, folder: Path, strike: Strike) -> dict[str, Any]:
    """What the job has measured. Blocks until it has ended."""

    def is_over() -> bool:
        serve(folder, strike)
        return job.exit_code is not None

    wait_until(is_over, TIMEOUT_S, f"the end of {job.tag}")
    assert job.exit_code == 0, job.output
    return dict(json.loads((folder / "measured.json").read_text()))


def in_pods(scratch: Path, rounds: int) -> dict[str, Any]:
    """On Kubernetes."""
    with kubernetes(scratch / "cluster", NODES) as cluster:

        def strike(asked: Mapping[str, Any], folder: Path) -> None:
            cluster.delete_pod(asked["pod"], None if asked["kind"] == "notice" else 0)

        folder = cluster.shared / "measured"
        folder.mkdir()
        folder.chmod(0o777)
        with submission(cluster, JOB, str(folder), str(rounds), conf=IN_PODS) as job:
            return measured(job, folder, strike)


def locally(scratch: Path, rounds: int) -> dict[str, Any]:
    """On Spark's local cluster."""

    def strike(asked: Mapping[str, Any], folder: Path) -> None:
        if asked["kind"] == "notice":
            drain(run_in(str(folder / "runs" / "run")), None, asked["slot"])
        else:
            os.kill(asked["jvm"], signal.SIGKILL)

    folder = scratch / "measured"
    folder.mkdir()
    options = [word for key, value in LOCALLY.items() for word in ("--conf", f"{key}={value}")]
    line = [f"{spark_home()}/bin/spark-submit", "--master", MASTER, *options, str(JOB), str(folder), str(rounds)]
    env = {"SPARK_HOME": spark_home(), "JAVA_HOME": java_home(), "SPARK_LOCAL_IP": "127.0.0.1"}
    python = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(JOB.parents[2])}
    job = SparkSubmit(scratch, line, "local", {**env, **python, "SPARK_WORKER_DIR": str(scratch / "work")})
    job.start()
    try:
        return measured(job, folder, strike)
    finally:
        job.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as scratch:
        os.chmod(scratch, 0o755)  # the users of pods are others
        local = locally(Path(scratch), rounds)
        pods = in_pods(Path(scratch), rounds)
    rows = []
    for name, key, unit, limit in FIGURES:
        here, there = (sorted(seconds(measurement[key])) for measurement in (local, pods))
        ratio = median(there) / median(here)
        medians = (f"{median(here):.2f} {unit}", f"{median(there):.2f} {unit}", f"{there[0]:.2f} to {there[-1]:.2f}")
        rows.append((name, *medians, f"{ratio:.2f}", at_most(ratio, limit)))
    notice = median(seconds(pods["notice"]))
    rows.append(("the same notice", "", "", "", f"{notice:.2f} s", at_most(notice, NOTICE_TARGET_S, " s")))
    for name, measurement in (("local cluster", local), ("Kubernetes", pods)):
        losses = [*measurement["notice"], *measurement["kill"]]
        repeated = sum(loss["repeated"] for loss in losses)
        healed = sum(loss["healed"] for loss in losses)
        rows.append((f"steps repeated, {name}", "", "", f"{healed:g} of {len(losses)} healed", f"{repeated:g}", ""))
    heads = ("", "local cluster", "Kubernetes", "all", "ratio", "target")
    show(f"pods beside processes of one machine, {rounds} rounds", heads, rows)


def seconds(measurements: list[Any]) -> list[float]:
    return [one["s"] if isinstance(one, dict) else one for one in measurements]


if __name__ == "__main__":
    main()
