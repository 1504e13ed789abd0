"""On a real YARN: from spark-submit to the first step of a gang, and from a container's kill to the next one.

    python -m benchmarks.yarn [--rounds 3] [--backend horovod]

Beside a bare Spark job on the same cluster: from spark-submit to its first task, and from the kill to the task's next
attempt; and beside one with tasks that import the frameworks which a member imports before its first step. They take
turns, after a bare one that is not measured: daemons that have just started are slow.
"""

import argparse
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.machine import at_most, show
from tests.support.hadoop import Yarn, hdfs, submission, yarn
from tests.support.processes import wait_until

START_TARGET_S = 5.0
"""Limit beyond a bare job's first task."""
KILL_TARGET_S = 3.0
"""Limit beyond the next attempt of a bare job's task."""
TIMEOUT_S = 180.0
HERE = Path(__file__).parent


def started(folder: Path, slot: int, attempt: int) -> tuple[float, str]:
    """When this attempt of a slot started, and in which container. Blocks until it has."""
    note = folder / f"started-{slot}-{attempt}"
    wait_until(note.exists, TIMEOUT_S, f"attempt {attempt} of slot {slot} in {folder}")
    at, container = note.read_text().split()
    return float(at), container


def measured(cluster: Yarn, folder: Path, program: Path, *arguments: str) -> tuple[float, float]:
    """Seconds from spark-submit until both slots have started, and from a container's kill until its slot restarts."""
    folder.mkdir()
    at = time.time()
    conf = {"spark.task.maxFailures": "1000", "spark.executor.memory": "640m"}
    with submission(cluster, program, *arguments, conf=conf) as submitted:
        first = [started(folder, slot, 0) for slot in range(2)]
        started_s = max(when for when, _ in first) - at
        at = time.time()
        cluster.kill_container(first[1][1])
        again_s = started(folder, 1, 1)[0] - at
        (folder / "stop").touch()
        assert submitted.wait(TIMEOUT_S) == 0, submitted.output
    return started_s, again_s


def bare(cluster: Yarn, folder: Path, *modules: str) -> tuple[float, float]:
    return measured(cluster, folder, HERE / "yarn_bare.py", str(folder), *modules)


def gang(cluster: Yarn, folder: Path, backend: str) -> tuple[float, float]:
    target = [f"{HERE / 'yarn_train.py'}:train", "--workers", "2", "--backend", backend, "--param", f"folder={folder}"]
    where = ["--dir", "hdfs:///runs", "--name", folder.name, "--quiet"]
    return measured(cluster, folder, HERE.parent / "jobs" / "run_gang.py", *target, *where)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backend", default="horovod")
    given = parser.parse_args()
    frameworks = ["tensorflow", "keras", *(["horovod.tensorflow"] if given.backend == "horovod" else [])]
    found: list[tuple[tuple[float, float], ...]] = []
    with (
        TemporaryDirectory(prefix="sparktrain-benchmark-") as scratch,
        hdfs(Path(scratch, "hdfs")) as files,
        yarn(Path(scratch, "yarn"), files) as cluster,
    ):
        bare(cluster, Path(scratch, "first"))
        for number in range(given.rounds):
            one = bare(cluster, Path(scratch, f"bare-{number}"))
            other = bare(cluster, Path(scratch, f"importing-{number}"), *frameworks)
            found.append((one, other, gang(cluster, Path(scratch, f"gang-{number}"), given.backend)))
    rows = []
    for part, (name, target) in enumerate(
        [("spark-submit to the first step", START_TARGET_S), ("a container's kill to the next step", KILL_TARGET_S)]
    ):
        rival, importing, ours = (median(each[who][part] for each in found) for who in range(3))
        rows += [
            (f"{name}: a bare Spark job's task", f"{rival:.2f} s", ""),
            (f"{name}: one that imports {', '.join(frameworks)}", f"{importing:.2f} s", ""),
            (f"{name}: a gang of two, {given.backend}", f"{ours:.2f} s", ""),
            ("   beyond the bare one", f"{ours - rival:.2f} s", at_most(ours - rival, target, " s")),
            ("   beyond the one that imports", f"{ours - importing:.2f} s", ""),
        ]
    show(f"YARN on this machine, client mode, {given.rounds} rounds", ("", "median", "target"), rows)


if __name__ == "__main__":
    main()
