"""Type checkers accept correct programs of users, and report each mistake at its line."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLES = Path(__file__).parent / "typing_samples"
Found = set[tuple[str, int]]
"""File and line of each error."""


def marked() -> Found:
    """The lines of the samples with a mistake."""
    return {
        (path.name, number)
        for path in SAMPLES.glob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.endswith("# wrong")
    }


def checked(module: str, *words: str) -> str:
    """The errors that a checker reports for all samples, in one process."""
    command = [sys.executable, "-m", module, *words, str(SAMPLES)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False).stdout


def by_mypy() -> Found:
    output = checked("mypy", "--strict")
    errors = re.findall(r"(\w+\.py):([0-9]+): error:", output)
    assert errors, output
    return {(name, int(line)) for name, line in errors}


def by_pyright() -> Found:
    output = checked("basedpyright", "--outputjson", "--level", "error", "--pythonpath", sys.executable)
    errors = [each for each in json.loads(output)["generalDiagnostics"] if each["severity"] == "error"]
    return {(Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in errors}


BY_MYPY = pytest.mark.all(
    case="what mypy reports of programs of users", covered_by="what pyright reports; `make types`: the package"
)


@pytest.mark.parametrize("find", [pytest.param(by_mypy, marks=BY_MYPY), by_pyright], ids=["mypy", "pyright"])
def test_each_mistake_is_reported_at_its_line_and_nothing_else(find: Callable[[], Found]) -> None:
    assert len(marked()) >= 25
    assert find() == marked()
