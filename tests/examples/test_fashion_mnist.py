"""The example of `make demo`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.all(
    case="`make demo` with six epochs, as its user runs it",
    covered_by="`examples/test_gangs`: the same function trains in a gang; `spark/test_command_line`: a "
    "sweep of the command line",
)
@pytest.mark.timeout(300)
def test_the_demo_reaches_its_accuracy(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sparktrain", "sweep", "examples/fashion_mnist.py:train"]
    space = ["--grid", "learning_rate=0.01", "--grid", "dropout=0.2,0.5"]
    options = ["--metric", "accuracy", "--dir", str(tmp_path), "--name", "demo", "--seed", "1", "--json"]
    done = subprocess.run(
        [*command, *space, *options], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert [trial["status"] for trial in result["trials"]] == ["succeeded", "succeeded"]
    assert result["best"]["metrics"]["accuracy"] > 0.85
    assert (tmp_path / "demo" / "results.json").read_text() == done.stdout
