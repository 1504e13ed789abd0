"""The programs on the page about PyTorch, unchanged."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RUN_S = 240.0
PROGRAMS = dict(
    re.findall(
        r"^```python title=\"([^\"]+)\"\n(.*?)^```$",
        (ROOT / "docs" / "torch.md").read_text(),
        re.DOTALL | re.MULTILINE,
    )
)

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


def ran(folder: Path, *command: str) -> tuple[str, Any]:
    """The output of a command with the programs in its folder, and the trial of the run that it has made."""
    for name, text in PROGRAMS.items():
        (folder / name).write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=RUN_S
    )
    assert ended.returncode == 0, ended.stderr
    [results] = (folder / "sparktrain-runs").glob("*/results.json")
    [trial] = json.loads(results.read_text())["trials"]
    assert trial["status"] == "succeeded"
    return ended.stdout, trial


def test_the_script_runs_as_after_torchrun(tmp_path: Path) -> None:
    ran(tmp_path, "-m", "sparktrain.torch", "--nproc-per-node", "2", "ddp.py")
    [log] = tmp_path.glob("sparktrain-runs/*/trials/0000/generation-1/rank-0/log.txt")
    losses = [float(loss) for loss in re.findall(r"loss (\S+)  2 members", log.read_text())]
    assert len(losses) == 5
    assert losses[-1] < losses[0] / 2


def test_the_function_learns_in_a_gang(tmp_path: Path) -> None:
    _, trial = ran(tmp_path, "train_torch.py")
    assert trial["metrics"]["steps"] == 5 * 4096 // (2 * 64)
    assert trial["metrics"]["error"] < 0.2


def test_members_that_hold_parts_learn(tmp_path: Path) -> None:
    _, trial = ran(tmp_path, "train_in_parts.py")
    assert trial["metrics"]["loss"] < 8.0  # 16 without a model
    assert len([*tmp_path.glob("sparktrain-runs/*/trials/0000/checkpoints/gen-0001/data/*.slices-0001.json")]) == 2
