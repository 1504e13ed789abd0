"""The example of `make demo`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("epochs", "accuracy"), [(2, 0.8), pytest.param(6, 0.85, marks=pytest.mark.all)])
def test_the_demo_reaches_its_accuracy(tmp_path: Path, epochs: int, accuracy: float) -> None:
    command = [sys.executable, "-m", "sparktrain", "sweep", "examples/fashion_mnist.py:train"]
    space = ["--grid", "learning_rate=0.01", "--grid", "dropout=0.2,0.5"]
    space += ["--grid", f"epochs={epochs}"]
    options = ["--metric", "accuracy", "--dir", str(tmp_path), "--name", "demo", "--seed", "1", "--json"]
    done = subprocess.run(
        [*command, *space, *options], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert [trial["status"] for trial in result["trials"]] == ["succeeded", "succeeded"]
    assert result["best"]["metrics"]["accuracy"] > accuracy
    assert (tmp_path / "demo" / "results.json").read_text() == done.stdout
