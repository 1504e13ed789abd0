"""The programs on the page about boosting, unchanged."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "boosting.md"
RUN_S = 240.0
PROGRAMS = re.findall(r"^```python title=\"([^\"]+)\"\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.all(
    case="the programs of the page about boosting",
    covered_by="`process/test_boosting`: a rule stops trainings; `examples/test_any_library`",
)
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "text"), PROGRAMS, ids=[name for name, _ in PROGRAMS])
def test_a_program_runs_and_its_rule_stops_slow_learners(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    ended = subprocess.run([sys.executable, name], cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S)
    assert ended.returncode == 0, ended.stderr
    [results] = (tmp_path / "sparktrain-runs").glob("*/results.json")
    trials = json.loads(results.read_text())["trials"]
    assert {trial["status"] for trial in trials} == {"succeeded", "pruned"}, ended.stdout
