"""The program on the page about Keras on JAX and PyTorch, unchanged."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "keras-backends.md"
RUN_S = 110.0
JAX = pytest.param(
    "jax",
    marks=pytest.mark.all(
        case="the program of the page about Keras on JAX and PyTorch, on JAX", covered_by="`examples/test_jax_page`"
    ),
)


@pytest.mark.parametrize("backend", [JAX, pytest.param("torch", marks=pytest.mark.torch)])
def test_the_program_sweeps_and_trains_a_gang(backend: str, tmp_path: Path) -> None:
    [(name, text)] = re.findall(
        r"^```python title=\"([^\"]+)\"\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    (tmp_path / name).write_text(text)
    environment = os.environ | {"KERAS_BACKEND": backend}
    ended = subprocess.run(
        [sys.executable, name], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=RUN_S
    )
    assert ended.returncode == 0, ended.stderr
    assert f"backend {backend}: " in ended.stdout + ended.stderr
    results = [json.loads(file.read_text()) for file in (tmp_path / "sparktrain-runs").glob("*/results.json")]
    assert sorted(len(result["trials"]) for result in results) == [1, 2]
    assert {trial["status"] for result in results for trial in result["trials"]} == {"succeeded"}
