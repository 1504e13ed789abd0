"""The programs of the README, unchanged: as files in an empty folder, and as cells of a notebook."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sparktrain.cluster.spark_session import jvm_here
from tests.examples.readme import commands, programs, shape
from tests.spark.command import environment
from tests.spark.notebook import Notebook

RUN_S = 150.0

pytestmark = pytest.mark.timeout(400)


def activated() -> dict[str, str]:
    """The environment of a shell with this virtual environment activated; its JVMs start with half the work."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return environment(PATH=path, JDK_JAVA_OPTIONS=jvm_here())


def test_the_readme_has_a_program_of_each_kind_and_an_installation() -> None:
    calls = [text.rpartition("sparktrain.")[2].partition("(")[0] for text, _ in programs()]
    assert calls == ["sweep", "run"]
    assert any("pip install 'sparktrain" in line for line in commands()[0])


@pytest.mark.parametrize(("text", "printed"), programs(), ids=["sweep", "gang"])
def test_a_program_runs_as_a_file(text: str, printed: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.py").write_text(text)
    command = ["python", "sweep.py"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=activated(), capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert shape(ran.stdout) == shape(printed)
    assert not re.search(r"WARN|incubator|log level|log4j|cuInit|oneDNN|absl", ran.stderr), ran.stderr
    of_test = "NOTE: Picked up JDK_JAVA_OPTIONS"  # Java names the options of `activated`
    first = next(line for line in ran.stderr.splitlines() if not line.startswith(of_test))
    assert re.match(r"train-[-\d]+: ", first), "the first line is ours"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sparktrain-runs", "sweep.py"]


@pytest.mark.all(
    case="the README's programs in a notebook", covered_by="as files; `spark/test_notebook`: a pool in a notebook"
)
def test_programs_run_in_cells_of_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in activated().items():
        monkeypatch.setenv(name, value)
    for name in set(os.environ) - set(activated()):
        monkeypatch.delenv(name)
    with Notebook(tmp_path) as notebook:
        for text, printed in programs():
            assert shape(notebook.run(text, RUN_S).printed) == shape(printed)
