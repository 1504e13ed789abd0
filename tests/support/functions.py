"""Training functions for tests: toys with exact results, and functions that fail in each possible way."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from sparktrain.base.clock import SystemClock, pause


def square(x: float) -> dict[str, float]:
    """A result that is exact."""
    return {"y": x * x}


def end_executor() -> None:
    """Kill the executor that runs this process, as a lost node does."""
    for each in psutil.Process().parents():
        if any(word.endswith("CoarseGrainedExecutorBackend") for word in each.cmdline()):
            each.kill()


def breed(x: int, pids: str, ctx: Any) -> None:
    """Write down the pids of this process, of a child in a session of its own and of a daemon; then train for ever."""
    note(pids, os.getpid())
    sleeper = [
        sys.executable,
        "-S",
        "-c",
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)",
    ]
    note(pids, subprocess.Popen(sleeper, start_new_session=True).pid)
    if (middle := os.fork()) == 0:
        os.setsid()
        note(pids, subprocess.Popen(sleeper, start_new_session=True).pid)
        os._exit(0)
    os.waitpid(middle, 0)
    Path(pids, f"ready-{x}").touch()
    while True:
        pause(0.05)
        ctx.report(round(SystemClock().now() * 1000), alive=1.0)


def note(folder: str, pid: int) -> None:
    """Write down a pid, as the name of a file."""
    Path(folder, str(pid)).touch()


def once(x: int, runs: str, hold: str, ctx: Any) -> float:
    """Note each run of a trial; the first run of trial 0 waits as long as the file `hold` is there."""
    mine = Path(runs, f"{x}-{os.getpid()}")
    mine.touch()
    first = len(list(Path(runs).glob(f"{x}-*"))) == 1
    while first and x == 0 and Path(hold).exists():
        pause(0.02)
    return float(x)
