"""`sparktrain run|sweep --tensorflowonspark`: module and members import the names of the original."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
from tensorflowonspark import dfutil
from tensorflowonspark.dfutil import isLoadedDF

def train(lr):
    import tensorflowonspark
    from tensorflowonspark import marker
    return {"same": float(tensorflowonspark.dfutil is dfutil and tensorflowonspark.marker is marker)}
"""


@pytest.mark.parametrize(
    "words",
    [
        ["run", "program.py:train", "--workers", "1", "--param", "lr=1"],
        ["sweep", "program.py:train", "--grid", "lr=1,2", "--metric", "same", "--mode", "max"],
    ],
    ids=["run", "sweep"],
)
def test_members_import_the_names(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "program.py").write_text(MODULE)
    call = [*words, "--local", "--quiet", "--json", "--dir", str(tmp_path / "runs")]
    without = sparktrain(call, tmp_path)
    assert without.returncode == 2
    assert "No module named 'tensorflowonspark'" in without.stderr

    done = sparktrain([*call, "--tensorflowonspark"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert {each["metrics"]["same"] for each in json.loads(done.stdout)["trials"]} == {1.0}


def test_a_resumed_run_needs_no_flag(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        MODULE + "\n\ndef wait_for(lr, flag):\n    from pathlib import Path\n"
        "    assert Path(flag).exists()\n    return train(lr)\n"
    )
    run = ["run", "program.py:wait_for", "--workers", "1", "--param", "lr=1", "--param", f"flag={tmp_path}/flag"]
    place = ["--local", "--quiet", "--json"]
    first = sparktrain([*run, *place, "--dir", str(tmp_path), "--name", "one", "--tensorflowonspark"], tmp_path)
    assert first.returncode == 3, first.stderr
    (tmp_path / "flag").touch()
    again = sparktrain(["resume", str(tmp_path / "one"), "--retry-failed", *place], tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["trials"][0]["metrics"]["same"] == 1.0


def sparktrain(words: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    call = [sys.executable, "-m", "sparktrain", *words]
    return subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
