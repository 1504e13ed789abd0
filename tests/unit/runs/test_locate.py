"""From the user's path or URL to a run directory, and the error when there is none."""

import json
from pathlib import Path

import pytest

from sparktrain.errors import RunDirectoryError, SpecError
from sparktrain.runs.locate import place_of, run_in, runs_in
from sparktrain.store.url import open_store
from tests.unit.driver.stored import ScriptedRun


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name in ("big", "mnist"):
        ScriptedRun(tmp_path / "runs", name)
    return tmp_path / "runs"


@pytest.mark.parametrize("form", ["{}/mnist", "{}/mnist/", "{}/big/../mnist", "file://{}/mnist", "file:{}/mnist"])
def test_the_directory_of_a_run(runs: Path, form: str) -> None:
    assert run_in(form.format(runs)).where == str(runs / "mnist")


def test_the_directory_where_one_is(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs / "mnist")
    assert run_in(".").where == str(runs / "mnist")
    assert run_in("../big").where == str(runs / "big")


def test_a_directory_of_runs(runs: Path) -> None:
    (runs / "not a run").mkdir()
    (runs / "other").mkdir()
    found, alone = runs_in(str(runs))
    assert ([place.layout.path for place in found], alone) == (["big", "mnist"], False)
    with pytest.raises(RunDirectoryError, match=r"holds 2 runs: pass the directory of one of them \(big, mnist\)"):
        run_in(str(runs))


@pytest.mark.parametrize(
    ("directory", "problem"),
    [
        ("nothing", "there is no such directory, or it is empty"),
        ("mnist/plans", "it is part of a run; pass {runs}/mnist"),
        ("mnist/run.json", "it is part of a run; pass {runs}/mnist"),
        ("other", "it has a.csv, b/, and neither run.json nor a folder with one"),
        ("lost", "its run.json is lost; put a copy back, or see `sparktrain fsck`"),
        ("file", "it is a file; pass a directory that has run.json"),
    ],
)
def test_a_directory_without_a_run_is_refused_with_a_next_step(runs: Path, directory: str, problem: str) -> None:
    (runs / "other" / "b").mkdir(parents=True)
    (runs / "other" / "a.csv").touch()
    (runs / "lost" / "journal").mkdir(parents=True)
    (runs / "file").touch()
    with pytest.raises(RunDirectoryError) as error:
        run_in(str(runs / directory))
    assert f"is no run directory: {problem.format(runs=runs)}" in str(error.value)


def test_a_run_without_its_overview_can_be_repaired(runs: Path) -> None:
    (runs / "mnist" / "run.json").unlink()
    (runs / "mnist" / "journal").mkdir()
    assert run_in(str(runs / "mnist"), without_overview=True).layout.path == "mnist"


@pytest.mark.parametrize("directory", ["foo://x/runs/mnist", "", "a\nb"])
def test_what_no_store_has(directory: str) -> None:
    with pytest.raises((SpecError, RunDirectoryError)):
        run_in(directory)


@pytest.mark.parametrize(
    ("directory", "root", "name"),
    [
        ("hdfs://nn:8020/runs/mnist", "hdfs://nn:8020/runs", "mnist"),
        ("webhdfs://gate:14000/runs/a/", "webhdfs://gate:14000/runs", "a"),
    ],
)
def test_urls_are_split_where_the_run_starts(directory: str, root: str, name: str) -> None:
    place = place_of(directory)
    assert (place.store.address.url, place.layout.path) == (root, name)


def test_runs_in_an_object_store() -> None:
    store = open_store("memory://places/runs")
    for name in ("big", "mnist"):
        store.put_if_absent(f"{name}/run.json", b"{}")
    assert run_in("memory://places/runs/mnist").where == "memory://places/runs/mnist"
    found, alone = runs_in("memory://places/runs")
    assert ([place.layout.path for place in found], alone) == (["big", "mnist"], False)


def test_the_run_of_a_newer_sparktrain(runs: Path) -> None:
    from tests.unit.driver.stored import BEGUN, HandClock, Observer

    path = runs / "mnist" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
    with pytest.raises(RunDirectoryError, match="has version 2, and this sparktrain reads version 1"):
        Observer(run_in(str(runs / "mnist")), HandClock(BEGUN)).look()
