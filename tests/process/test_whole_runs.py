"""Runs of real calls are listed, compared and deleted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import sparktrain as st
from sparktrain import cli
from sparktrain.cluster.yarn_container import this_user

Capture = pytest.CaptureFixture[str]


def plain(lr: float) -> dict[str, float]:
    return {"accuracy": lr}


def doubled(lr: float) -> dict[str, float]:
    factor = 2
    return {"accuracy": factor * lr}


def with_files(lr: float, ctx: st.TrainContext) -> dict[str, float]:
    (Path(ctx.log_dir) / "plots").mkdir(parents=True)
    (Path(ctx.log_dir) / "plots" / "run.json").write_text("{}")
    return {"accuracy": lr}


def removing(directory: str) -> dict[str, float]:
    """A trial that deletes the run with the directory that its own run is in."""
    words = [sys.executable, "-m", "sparktrain", "rm", directory, "--yes"]
    return {"code": float(subprocess.run(words, check=False).returncode)}


def document(capfd: Capture, *words: str) -> dict[str, object]:
    capfd.readouterr()
    assert cli.main([*words, "--json"]) == 0
    found: dict[str, object] = json.loads(capfd.readouterr().out)
    return found


def test_two_sweeps_are_listed_compared_and_deleted(tmp_path: Path, capfd: Capture) -> None:
    runs = str(tmp_path / "runs")
    with st.pool(st.local(slots=2), preload=[]) as pool:
        one = pool.sweep(plain, {"lr": [0.1, 0.2]}, dir=runs, name="one", metric="accuracy", seed=7, progress=False)
        two = pool.sweep(
            doubled, {"lr": [0.1, 0.3]}, dir=runs, name="two", metric="accuracy", timeout="1h", seed=7, progress=False
        )
        files = pool.sweep(
            with_files, {"lr": [0.0]}, dir=runs, name="files", metric="accuracy",
            progress=False,
        )  # fmt: skip
    listed = document(capfd, "ls", runs, "--sort", "best")["runs"]
    assert isinstance(listed, list)
    users = [(each["name"], each["driver"]["user"]) for each in listed]
    assert users == [("two", this_user()), ("one", this_user()), ("files", this_user())]
    found = document(capfd, "diff", one.directory, two.directory)["differences"]
    assert isinstance(found, dict)
    assert list(found) == ["function", "code", "space", "options"]
    assert "+    factor = 2" in found["code"]
    assert any("0.3" in line for line in found["space"])
    removed = document(capfd, "rm", one.directory, two.directory, files.directory, "--yes")["runs"]
    assert isinstance(removed, list)
    assert [(each["removed"], each["left"]) for each in removed] == [(True, [])] * 3
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_run_within_the_directory_of_another_one_outlives_it(tmp_path: Path) -> None:
    with st.pool(st.local(slots=1), preload=[]) as pool:
        outer = pool.sweep(plain, {"lr": [0.1]}, dir=str(tmp_path), name="a", metric="accuracy", progress=False)
        inner = pool.sweep(
            removing, {"directory": [outer.directory]}, dir=outer.directory, name="b", metric="code", mode="min",
            progress=False,
        )  # fmt: skip
    assert [each.metrics for each in inner.trials] == [{"code": 0.0}]
    assert [path.name for path in Path(outer.directory).iterdir()] == ["b"]
    assert st.load(inner.directory).trials == inner.trials
