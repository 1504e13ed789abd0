"""The command line in other processes, and the files of a user who calls it."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

from sparktrain.base.threads import spawn

MASTER = "local-cluster[2,1,1024]"
BIN = Path(sys.executable).parent
TIMEOUT_S = 110
HANG_S = 600
"""A limit against hangs of what starts Spark on any machine. No wait of the product is this long, and a busy one is
slow: a sweep of three trials took six minutes where ten processes shared a core."""

TRAIN = """
import command_helper
from tests.support.functions import breed, end_executor

print("imported")

def train(x, scale=1):
    print("scale", scale)
    if x < 0:
        raise ValueError(f"x ({x}) is below zero")
    return {"y": command_helper.double(x) * scale, "x": x}

def murder(x, ctx):
    if ctx.generation == 1:
        end_executor()
    return {"y": x}

def hold(x, pids, ctx):
    breed(x, pids, ctx)
"""
HELPER = "def double(x):\n    return 2 * x\n"
PARAMS = "grid:\n  x: [1, 2]\nmetric: y\nmode: max\ntrial_timout: 5m\n"


def write_files(folder: Path) -> Path:
    """Write the training file into a folder other than the working directory; return its path."""
    home = folder / "code"
    home.mkdir()
    (home / "command_helper.py").write_text(HELPER)
    (home / "command_params.yaml").write_text(PARAMS)
    (home / "command_train.py").write_text(TRAIN)
    return home / "command_train.py"


def environment(**more: str) -> dict[str, str]:
    """The environment of a user's shell, without the variables of Spark that other tests set."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))} | more


def start(folder: Path, *arguments: str, command: str = "sparktrain", **env: str) -> "subprocess.Popen[bytes]":
    """Start a command in a session of its own, as a terminal does."""
    return subprocess.Popen(
        [str(BIN / command), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=environment(**env),
        start_new_session=True,
    )


def on_a_terminal(folder: Path, *arguments: str, **env: str) -> tuple[int, str]:
    """Run a command of sparktrain on a terminal of its own until its end; return exit code and all that it showed."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
    process = subprocess.Popen(
        [str(BIN / "sparktrain"), *arguments],
        stdin=follower, stdout=follower, stderr=follower,
        cwd=folder, env=environment(**env), start_new_session=True,
    )  # fmt: skip
    os.close(follower)
    shown: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # the last writer has closed it
            while data := os.read(leader, 65536):
                shown.append(data)

    reader = spawn(read)
    try:
        process.wait(TIMEOUT_S)
    finally:
        process.kill()
        reader.join(TIMEOUT_S)
        os.close(leader)
    return process.returncode, b"".join(shown).decode(errors="replace")


def finish(process: "subprocess.Popen[bytes]", timeout_s: float = TIMEOUT_S) -> tuple[int, bytes, str]:
    """Wait for the end; return exit code, stdout and stderr. Kills the process at the timeout."""
    try:
        out, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, out, stderr.decode()
