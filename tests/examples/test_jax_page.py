"""The programs on the page about JAX, unchanged."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "jax.md"
RUN_S = 120.0
PROGRAMS = re.findall(r"^```python title=\"([^\"]+)\"\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
OTHERS = pytest.mark.all(
    case="the first programs on the page about JAX",
    covered_by="the one that resumes; `process/test_eager_gangs`, `process/test_keras_jax_gangs`",
)
RESUMED = "resumed.py"


@pytest.mark.parametrize(
    ("name", "text"),
    [pytest.param(*program, id=program[0], marks=() if program[0] == RESUMED else OTHERS) for program in PROGRAMS],
)
def test_a_program_trains_in_a_gang_of_jax(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    ended = subprocess.run([sys.executable, name], cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S)
    assert ended.returncode == 0, ended.stderr
    assert "backend jax: " in ended.stdout + ended.stderr
    [results] = (tmp_path / "sparktrain-runs").glob("*/results.json")
    assert [trial["status"] for trial in json.loads(results.read_text())["trials"]] == ["succeeded"]
