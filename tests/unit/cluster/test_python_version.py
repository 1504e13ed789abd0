"""The Python of executors on this machine is the driver's, or an error precedes the start."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparktrain.cluster.python_version import settle_python
from sparktrain.cluster.spark_facts import Facts
from sparktrain.config.versions import mismatch
from sparktrain.errors import EnvironmentMismatchError

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def session(python: str) -> Any:
    return SimpleNamespace(_sc=SimpleNamespace(pythonExec=python))


def settled(made: Any, master: str = "local[2]") -> str:
    settle_python(made, Facts(master, {}, 2))
    return str(made._sc.pythonExec)


def program(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("master", ["local[2]", "local[*]", "local-cluster[2,1,1024]"])
def test_where_none_is_named_executors_run_the_drivers(master: str) -> None:
    assert settled(session("python3"), master) == sys.executable


@pytest.mark.parametrize("master", ["yarn", "spark://host:7077", "k8s://host"])
def test_a_cluster_has_its_own(master: str) -> None:
    assert settled(session("python3"), master) == "python3"
    assert settled(session("/nowhere/python"), master) == "/nowhere/python"


def test_one_that_is_named_stays_where_its_version_is_the_drivers(tmp_path: Path) -> None:
    named = program(tmp_path, f"echo {HERE}")
    assert settled(session(named)) == named


def test_another_version_is_refused_with_both_and_the_variable(tmp_path: Path) -> None:
    named = program(tmp_path, "echo 3.7")
    with pytest.raises(EnvironmentMismatchError) as caught:
        settled(session(named))
    assert str(caught.value) == (
        f"executors run Python 3.7 (PYSPARK_PYTHON is {named}) and the driver runs Python {HERE} ({sys.executable}): "
        f"unset PYSPARK_PYTHON, or set it to {sys.executable}, before you create the session"
    )


@pytest.mark.parametrize("text", [None, "exit 3"])
def test_one_that_cannot_be_run_is_refused(text: str | None, tmp_path: Path) -> None:
    named = str(tmp_path / "nowhere") if text is None else program(tmp_path, text)
    with pytest.raises(EnvironmentMismatchError, match=r"PYSPARK_PYTHON \(.*\), cannot be run: .* unset"):
        settled(session(named))


def test_connect_knows_no_python_of_executors() -> None:
    remote = SimpleNamespace()
    settle_python(remote, Facts("local[2]", {}, 2))  # type: ignore[arg-type] # of Connect
    assert vars(remote) == {}


def test_the_variable_is_named_for_executors_of_a_cluster_too() -> None:
    problem = mismatch({"python": "3.11"}, {"python": "3.9"}, "node-1")
    assert problem == (
        "python is 3.11 on the driver and 3.9 on the executor (host node-1): name the same Python by PYSPARK_PYTHON on "
        "both, or install the same versions on both"
    )
    assert "PYSPARK_PYTHON" not in mismatch({"keras": "3.1"}, {"keras": "3.0"}, "node-1")
