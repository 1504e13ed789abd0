"""The command line in processes of their own, and the files of a user who calls it."""

import os
import subprocess
import sys
from pathlib import Path

MASTER = "local-cluster[2,1,1024]"
BIN = Path(sys.executable).parent
TIMEOUT_S = 110

TRAIN = """
import command_helper
from tests.support.functions import breed

print("imported")

def train(x, scale=1):
    print("scale", scale)
    if x < 0:
        raise ValueError(f"x ({x}) is below zero")
    return {"y": command_helper.double(x) * scale, "x": x}

def hold(x, pids, ctx):
    breed(x, pids, ctx)
"""
HELPER = "def double(x):\n    return 2 * x\n"
PARAMS = "grid:\n  x: [1, 2]\nmetric: y\nmode: max\ntrial_timout: 5m\n"


def write_files(folder: Path) -> Path:
    """The training file, in a folder that is not the working directory; its path."""
    home = folder / "code"
    home.mkdir()
    (home / "command_helper.py").write_text(HELPER)
    (home / "command_params.yaml").write_text(PARAMS)
    (home / "command_train.py").write_text(TRAIN)
    return home / "command_train.py"


def environment(**more: str) -> dict[str, str]:
    """As of a user's shell: what other tests of this process set for their Spark is not in it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))} | more


def start(folder: Path, *arguments: str, command: str = "sparktrain", **env: str) -> "subprocess.Popen[bytes]":
    """The process, in a session of its own as under a terminal."""
    return subprocess.Popen(
        [str(BIN / command), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=environment(**env),
        start_new_session=True,
    )


def finish(process: "subprocess.Popen[bytes]", timeout_s: float = TIMEOUT_S) -> tuple[int, bytes, str]:
    """Exit code, stdout, stderr; ended by force when it takes longer."""
    try:
        out, told = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, out, told.decode()
