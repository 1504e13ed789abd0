"""The floor of a trial in a process of its own: forks of a process that has imported what a zygote has.

    python -m benchmarks.bare_forks tensorflow,keras 200

Each child exits at once: it copies no page, and does nothing of what sparktrain does. Prints milliseconds for each.
"""

import os
import subprocess
import sys
import time

from sparktrain.training.forkable import preload

FORKS = 200


def bare_fork_ms(modules: list[str], slots: int) -> float:
    """Milliseconds from a fork to the end of its child, in `slots` processes at once, over all their forks."""
    command = [sys.executable, "-m", "benchmarks.bare_forks", ",".join(modules), str(FORKS)]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) for _ in range(slots)
    ]
    for process in started:
        assert process.stdout is not None
        process.stdout.readline()  # it has imported the modules
    took = [float(process.communicate("go\n")[0]) for process in started]
    return sum(took) / len(took) / slots


def main() -> None:
    failed = preload(sys.argv[1].split(","))
    assert not failed, failed
    print("ready", flush=True)
    sys.stdin.readline()
    started_at = time.perf_counter()
    forks = int(sys.argv[2])
    for _ in range(forks):
        if (pid := os.fork()) == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    print(1000 * (time.perf_counter() - started_at) / forks)


if __name__ == "__main__":
    main()
