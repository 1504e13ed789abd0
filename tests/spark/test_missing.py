"""A module that executors lack is named with the command that installs it, from the error of a real executor."""

import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.spark.command import finish, start, write_files


def python_without(package: str, folder: Path) -> Path:
    """This environment without one package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [site] = folder.glob("lib/python*/site-packages")
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if each.name != package:
            (site / each.name).symlink_to(each)
    return folder / "bin" / "python"


@pytest.mark.all(case="executors without msgspec", covered_by="`unit/cluster/test_import_failures`")
def test_a_module_that_executors_lack_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    python = python_without("msgspec", tmp_path / "node")
    job = [
        "sweep",
        f"{write_files(tmp_path)}:train",
        "--grid",
        "x=1",
        "--metric",
        "y",
        "--mode",
        "max",
        "--preload",
        "numpy",
    ]
    master = ["--master", "local-cluster[1,1,1024]"]
    code, _, stderr = finish(
        start(tmp_path, *job, *master, PYSPARK_PYTHON=str(python), PYSPARK_DRIVER_PYTHON=sys.executable)
    )
    assert code == 5, stderr
    error = next(line for line in stderr.splitlines() if line.startswith("error: "))
    assert "cannot import msgspec: install it on every node, for the Python that executors run: " in error
    assert f"pip install 'msgspec=={version('msgspec')}'; or have executors run from a pack" in error
