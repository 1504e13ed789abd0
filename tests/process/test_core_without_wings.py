"""The core works without its wings: a sweep of gangs and commands, in a copy of the repository that has none."""

import os
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from scripts.import_map import PACKAGE, read_imports
from scripts.touched import ROOT
from scripts.touched_edges import WINGS

PROGRAM = """\
import importlib.util
import os

import sparktrain as st
from sparktrain.cli import main


def train(x, ctx):
    assert importlib.util.find_spec("sparktrain.views") is None
    total = ctx.allreduce(x, average=False)
    ctx.report(0, loss=total)
    return {"loss": total}


if __name__ == "__main__":
    assert st.__file__.startswith(os.getcwd())
    gangs = {"workers_per_trial": 2, "backend": "tensorflow", "spark": st.local(2), "progress": False}
    st.sweep(train, {"x": [1, 2]}, metric="loss", mode="min", name="swept", **gangs)
    result = st.load("sparktrain-runs/swept")
    assert (result.best.params, result.best.metrics) == ({"x": 1}, {"loss": 2.0}), result
    for line in ("ls", "status sparktrain-runs/swept", "logs sparktrain-runs/swept", "fsck sparktrain-runs/swept"):
        assert main([*line.split(), "--debug"]) == 0, line
"""
OF_WINGS = {"tests/unit/cli/test_cli.py", "tests/unit/cli/test_trace_command.py"}
"""Tests of the help, which lists the commands of wings too, and of a report: they reach wings by names in tables."""
IN_NOTEBOOKS = (
    "case_results.py::test_the_table_shows_cases",
    "run_result.py::test_a_notebook_gets_a_table_of_members_and_everything_is_escaped",
    "stored_result.py::test_a_run_whose_driver_is_gone_shows_how_to_resume_it",
    "sweep_result.py::test_html_marks_the_best_and_shows_root_causes",
    "sweep_result.py::test_html_shows_what_users_named_as_text",
    "sweep_result.py::test_text_and_html_have_the_traceback_of_each_cause",
)
"""Tests of results that a notebook shows, by a wing that they reach by its name."""
SMOKE = (
    *("tests/process/test_sweeps.py", "tests/process/test_gang_runs.py", "tests/process/test_zygote.py"),
    "tests/training/test_local_gang.py::test_a_local_gang_trains_what_one_process_trains[tensorflow]",
    "tests/faults/test_gangs.py::test_a_killed_process_costs_a_restart[none-member-0]",
)


def run_in(copy: Path, words: list[str], seconds: float) -> None:
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    ended = subprocess.run(
        [sys.executable, *words], cwd=copy, env=environment, capture_output=True, text=True, timeout=seconds
    )
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr


def copy_without(copy: Path, removed: set[str], folders: tuple[str, ...]) -> None:
    """Copy `folders` of the repository to `copy`, but for the files `removed` and caches."""
    for folder in folders:
        for path in (ROOT / folder).rglob("*.*"):
            name = path.relative_to(ROOT).as_posix()
            if path.is_file() and "__pycache__" not in name and name not in removed:
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, copy / name)


def wings() -> set[str]:
    paths = {path.relative_to(ROOT).as_posix() for path in (ROOT / PACKAGE).rglob("*.*")}
    return {path for path in paths if any(fnmatch(path, wing) for wing in WINGS)}


@pytest.mark.timeout(300)
def test_gangs_and_commands_run(tmp_path: Path) -> None:
    copy_without(tmp_path, wings(), (PACKAGE,))
    (tmp_path / "program.py").write_text(PROGRAM)
    run_in(tmp_path, ["program.py"], 280)


@pytest.mark.all(
    case="the unit tests, the histories and a smoke ring of the core, without wings",
    covered_by="a sweep of gangs and commands without them",
)
@pytest.mark.timeout(3600)
def test_its_tests_pass(tmp_path: Path) -> None:
    imports = read_imports(ROOT)
    removed = wings() | OF_WINGS
    removed |= {path for path in imports.uses if "/test_" in path and imports.reach(path, "tests/") & removed}
    removed |= {path for path in imports.uses if fnmatch(path, "tests/unit/views/*/test_*")}
    copy_without(tmp_path, removed, (PACKAGE, "tests", "scripts", "benchmarks", "examples", "jobs", "docs", "conf"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    units = [path.relative_to(tmp_path).as_posix() for path in (tmp_path / "tests" / "unit").iterdir() if path.is_dir()]
    deselected = [f"--deselect=tests/unit/results/test_{name}" for name in IN_NOTEBOOKS]
    selection = [*deselected, *units, "tests/histories", *SMOKE]
    run_in(tmp_path, ["-m", "pytest", "-q", "-n", "2", "-m", "not all and not rig and not torch", *selection], 3500)
