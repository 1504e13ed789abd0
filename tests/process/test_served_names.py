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
    call = [sys.executable, "-m", "sparktrain", *words, "--local", "--quiet", "--json", "--dir", str(tmp_path / "runs")]
    without = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert without.returncode == 2
    assert "No module named 'tensorflowonspark'" in without.stderr

    done = subprocess.run(
        [*call, "--tensorflowonspark"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert {each["metrics"]["same"] for each in json.loads(done.stdout)["trials"]} == {1.0}
