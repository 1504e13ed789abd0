"""Runs of real calls are listed, compared and deleted."""

import json
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
    listed = document(capfd, "ls", runs, "--sort", "best")["runs"]
    assert isinstance(listed, list)
    assert [(each["name"], each["driver"]["user"]) for each in listed] == [("two", this_user()), ("one", this_user())]
    found = document(capfd, "diff", one.directory, two.directory)["differences"]
    assert isinstance(found, dict)
    assert list(found) == ["function", "code", "space", "options"]
    assert "+    factor = 2" in found["code"]
    assert any("0.3" in line for line in found["space"])
    removed = document(capfd, "rm", one.directory, two.directory, "--yes")["runs"]
    assert isinstance(removed, list)
    assert [each["removed"] for each in removed] == [True, True]
    assert list((tmp_path / "runs").iterdir()) == []
