"""Commands that only look at runs, from the shell to their answer: wall time, CPU time, and the time of imports.

    python -m benchmarks.command_start [--calls 5]

Each call is a fresh process, and the median of all is compared with the target. The modules are compiled, as in an
installed wheel: the first call of each command compiles them into a folder of this benchmark, and does not count. CPU
time is that of the process, which a busy machine changes less than wall time. `python -X importtime` reports the
time of imports; the note names the largest of them.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.machine import at_most, show
from sparktrain.base.clock import SystemClock

VERSION_TARGET_S = 0.3
LS_TARGET_S = 0.6
COMMANDS = (
    (("--version",), VERSION_TARGET_S),
    (("ls", "runs"), LS_TARGET_S),
    (("status", "runs/first"), LS_TARGET_S),
    (("best", "runs/first"), LS_TARGET_S),
    (("--help",), None),
)
_IMPORT = re.compile(r"import time: +(\d+) \| +\d+ \| *(\S+)")
_LARGEST = 3


class CommandCall:
    """One call of `sparktrain` in `folder`, from the start of its process to its end."""

    def __init__(self, folder: Path, words: tuple[str, ...], *flags: str) -> None:
        clock, before = SystemClock(), resource.getrusage(resource.RUSAGE_CHILDREN)
        started_at = clock.now()
        ended = subprocess.run(
            [sys.executable, *flags, "-m", "sparktrain", *words],
            cwd=folder,
            env=_environment(folder),
            capture_output=True,
            text=True,
            check=True,
        )
        self.wall_s = clock.now() - started_at
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.stderr = ended.stderr


def _environment(folder: Path) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**variables, "PYTHONPYCACHEPREFIX": str(folder / "compiled"), "PYTHONPATH": str(Path.cwd())}


def _imports(folder: Path, words: tuple[str, ...]) -> tuple[float, str]:
    """Seconds that the imports of a command take, and the modules that take the most of them."""
    spent = [(int(us), name) for us, name in _IMPORT.findall(CommandCall(folder, words, "-X", "importtime").stderr)]
    largest = ", ".join(f"{name} {us / 1000:.0f} ms" for us, name in sorted(spent, reverse=True)[:_LARGEST])
    return sum(us for us, _ in spent) / 1e6, largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=5)
    count = parser.parse_args().calls
    rows, notes = [], []
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as name:
        folder = Path(name)
        (folder / "train.py").write_text("def train(x):\n    return {'loss': 1 / x}\n")
        sweep = ("sweep", "train.py:train", "--grid", "x=1,2", "--metric", "loss", "--local", "--quiet")
        CommandCall(folder, (*sweep, "--dir", "runs", "--name", "first"))
        for words, target_s in COMMANDS:
            calls = [CommandCall(folder, words) for _ in range(count + 1)][1:]
            walls = [call.wall_s for call in calls]
            imports_s, largest = _imports(folder, words)
            rows.append(
                (
                    f"sparktrain {' '.join(words)}",
                    f"{median(walls):.2f}",
                    f"{min(walls):.2f} to {max(walls):.2f}",
                    f"{median(call.cpu_s for call in calls):.2f}",
                    f"{imports_s:.2f}",
                    "" if target_s is None else at_most(median(walls), target_s, " s"),
                )
            )
            notes.append(f"{words[0]}: {largest}")
    columns = ("command", "wall s", "all", "CPU s", "imports s", "target")
    show("From the shell to the answer", columns, rows, "largest imports: " + "; ".join(notes))


if __name__ == "__main__":
    main()
