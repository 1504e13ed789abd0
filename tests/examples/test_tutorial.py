"""The tutorial, from top to bottom: its files, its commands, and their output."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.examples.readme import shape
from tests.examples.test_readme import activated

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
RUN_S = 240.0
_BLOCK = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def typed(text: str) -> list[str]:
    """The commands of a shell block."""
    return [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]


@pytest.mark.all(
    case="the tutorial: a sweep, the best model, a gang on a DataFrame, and predictions",
    covered_by="`examples/test_readme`: a sweep and a gang as files; `spark/test_data`: a gang on a DataFrame; "
    "`spark/test_predict`; `unit/test_docs`: its programs use public names",
)
@pytest.mark.timeout(900)
def test_every_command_prints_what_the_page_shows(tmp_path: Path) -> None:
    shell, ran, printed = activated(), list[str](), ""
    for language, title, text in _BLOCK.findall(PAGE.read_text()):
        if title:
            (tmp_path / title).write_text(text)
        elif language == "console":
            for command in typed(text):
                done = subprocess.run(
                    ["bash", "-c", command], cwd=tmp_path, env=shell, capture_output=True, text=True, timeout=RUN_S,
                    check=False,
                )  # fmt: skip
                assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
                ran.append(command)
                printed = done.stdout
        else:
            assert shape(printed) == shape(text)
    assert [command for command in ran if command.startswith("python")] == [
        "python make_data.py", "python search.py", "python predict.py", "python gang.py",
    ]  # fmt: skip
    assert {path.name for path in (tmp_path / "sparktrain-runs").iterdir()} == {"moons", "moons-gang"}
