"""A sweep of two trivial trials from the shell: to its end, and to the first line of user code; here and on Spark.

    python -m benchmarks.local_start [--calls 5]

`sparktrain sweep` is a fresh process each time. Trial and driver read the clock of the same machine. CPU time is that
of all processes of a local call, which a busy machine changes less than wall time. The rival is the same command on the
Spark that it starts by default. With a package of 500 modules beside the function, the first call parses their sources,
and later ones find the results in the user's cache folder, which is a folder of this benchmark here.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.machine import at_most, show

END_TARGET_S = 1.5
FIRST_LINE_TARGET_S = 1.0
TRAIN = "import time\n\ndef train(x):\n    return {'at': time.time()}\n"
PACKAGE = 500
MODULE = "import os\n" + "".join(
    f"\n\ndef part_{number}(values):\n    total = [os.path.join('a', str(each + {number})) for each in values]\n"
    "    return {'first': total[0], 'rest': total[1:]} if total else None\n"
    for number in range(40)
)
"""The most of a module of 160 lines; each has a line of its own."""
SWEEP = ("sweep", "train.py:train", "--grid", "x=1,2", "--metric", "at", "--mode", "min", "--json", "--quiet")


class Call:
    """One `sparktrain sweep`, from the start of its process to its end."""

    def __init__(self, folder: Path, *words: str) -> None:
        cpu, started_at = _cpu_s(), time.time()
        command = [sys.executable, "-m", "sparktrain", *SWEEP, *words]
        ended = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        self.end_s = time.time() - started_at
        self.cpu_s = _cpu_s() - cpu
        self.first_line_s = min(trial["metrics"]["at"] for trial in json.loads(ended.stdout)["trials"]) - started_at


def _cpu_s() -> float:
    """CPU seconds of all processes that this one has waited for, and of their children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def row(name: str, values: list[float], target_s: float | None = None) -> tuple[str, ...]:
    seconds = "  ".join(f"{value:.2f}" for value in values)
    return name, f"{median(values):.2f}", seconds, at_most(median(values), target_s, " s") if target_s else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--no-rival", action="store_true", help="where there is no Java")
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as name:
        folder = Path(name)
        (folder / "train.py").write_text(TRAIN)
        local = [Call(folder, "--local") for _ in range(asked.calls + 1)][1:]
        rival = [] if asked.no_rival else [Call(folder) for _ in range(min(3, asked.calls))]
        folder = Path(name, "large")
        package = folder / "mine"
        package.mkdir(parents=True)
        (folder / "train.py").write_text(f"import mine\n{TRAIN}")
        for number in range(PACKAGE):
            (package / (f"module_{number}.py" if number else "__init__.py")).write_text(
                f"{MODULE}\n\nNUMBER = {number}\n"
            )
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        large = [Call(folder, "--local") for _ in range(asked.calls + 1)]
    rows = [
        row("--local: to the end", [each.end_s for each in local], END_TARGET_S),
        row("--local: first line of user code", [each.first_line_s for each in local], FIRST_LINE_TARGET_S),
        row("--local: CPU time", [each.cpu_s for each in local]),
        row(f"{PACKAGE} modules, CPU time of the first call", [large[0].cpu_s]),
        row(f"{PACKAGE} modules, CPU time of later calls", [each.cpu_s for each in large[1:]]),
    ]
    if rival:
        rows += [
            row("rival, on Spark: to the end", [each.end_s for each in rival]),
            row("rival, on Spark: first line of user code", [each.first_line_s for each in rival]),
        ]
    show("sparktrain sweep of two trivial trials", ("seconds", "median", "each call", "target"), rows)


if __name__ == "__main__":
    main()
