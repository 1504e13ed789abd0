"""The cost of the doctor on a real YARN with HDFS: its fast part in each launch, and all of it, from spark-submit on.

python -m benchmarks.doctor [--rounds 3]
"""

import argparse
import json
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.machine import at_most, show
from tests.support.hadoop import Yarn, hdfs, submit, yarn

FAST_TARGET_S = 1.0
WHOLE_TARGET_S = 60.0
HERE = Path(__file__).parent
CONF = {"spark.task.maxFailures": "1000"}


def fast(cluster: Yarn, scratch: Path) -> list[float]:
    """Seconds of the checks of each launch, the first of the session first."""
    output = scratch / "fast.json"
    submitted = submit(cluster, HERE / "doctor_fast.py", "hdfs:///runs", str(output), conf=CONF)
    assert submitted.exit_code == 0, submitted.output
    return list(json.loads(output.read_text()))


def whole(cluster: Yarn) -> float:
    """Seconds of the doctor as a Spark job."""
    started_at = time.perf_counter()
    submitted = submit(cluster, HERE.parent / "jobs" / "doctor.py", "--dir", "hdfs:///runs", conf=CONF)
    assert submitted.exit_code == 0, submitted.output
    return time.perf_counter() - started_at


def shown(seconds: list[float]) -> str:
    return ", ".join(f"{each:.2f}" for each in seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with (
        TemporaryDirectory(prefix="sparktrain-benchmark-") as scratch,
        hdfs(Path(scratch, "hdfs")) as files,
        yarn(Path(scratch, "yarn"), files) as cluster,
    ):
        launches = fast(cluster, Path(scratch))
        wholes = [whole(cluster) for _ in range(given.rounds)]
    rows = [
        ("fast part, in each launch", f"{max(launches):.2f} s (slowest)", shown(launches), FAST_TARGET_S, launches),
        ("whole, as a job of Spark", f"{median(wholes):.2f} s", shown(wholes), WHOLE_TARGET_S, wholes),
    ]
    cells = [(name, value, each, at_most(max(times), target, " s")) for name, value, each, target, times in rows]
    show("The doctor on YARN with HDFS on this machine", ("", "took", "all", "target"), cells)


if __name__ == "__main__":
    main()
