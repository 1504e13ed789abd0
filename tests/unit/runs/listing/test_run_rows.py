"""Rows of runs: the same from a few small files as from the journal, and what there is of runs that cannot be read."""

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from sparktrain.config.objectives import constraints
from sparktrain.errors import RunDirectoryError, StoreRefusedError
from sparktrain.runs.listing import run_list
from sparktrain.runs.listing.run_folder import RunFolder, runs_of
from sparktrain.runs.listing.run_list import list_runs, read_row
from sparktrain.runs.listing.run_row import RunRow
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.plan import Origin, RefitTrial, WarmPlan
from sparktrain.runs.results_json import to_bytes
from sparktrain.state.records import DriverStarted
from sparktrain.store.localfs import LocalStore
from tests.unit.driver.stored import HandClock, ScriptedRun, looked_at, spoil, typical


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def ended(run: ScriptedRun, ending: str = "complete", reason: str = "") -> ScriptedRun:
    """The run after its driver's end, with its `results.json`."""
    run.end(ending, reason)
    run.store.put_if_absent(run.layout.results, to_bytes(looked_at(run).as_outcome()))
    return run


def scripted(folder: Path, name: str, **options: Any) -> ScriptedRun:
    run = ScriptedRun(folder, name, **options).begin()
    run.add(*({"lr": 10.0**-number, "net": {"units": 16 * number, "act": "relu"}} for number in range(3)))
    for trial in range(3):
        run.form(trial)
        run.at += 10
    run.lose(1)
    run.form(1, generation=2)
    return run


def row_at(place: RunLocation) -> RunRow:
    return read_row(place, HandClock()).row


def both_rows(run: ScriptedRun) -> tuple[RunRow, RunRow]:
    """The row by small files alone, and by the journal."""
    short = read_row(run.place, HandClock())
    assert short.observer is None, "the journal was read"
    return short.row, read_row(run.place, HandClock(), whole=True).row


@pytest.mark.parametrize("case", ["succeeded", "failed", "stopped", "not finite", "no metric", "gang", "constraint"])
def test_a_run_that_has_ended_has_the_row_of_its_journal(folder: Path, case: str) -> None:
    options: dict[str, Any] = {
        "no metric": {"metric": None},
        "gang": {"workers": 4},
        "constraint": {"constraints": constraints(["loss <= 0.6"])},
    }.get(case, {})
    run = scripted(folder, "run", total=3, **options)
    for trial in range(3):
        if case == "failed" or trial == 2:
            run.fail(trial)
        else:
            run.succeed(trial, accuracy=math.nan if case == "not finite" else 0.5 + trial / 10, loss=1.0 - trial / 2)
    ended(run, *(("stopped", "Ctrl-C") if case == "stopped" else ()))
    short, whole = both_rows(run)
    assert short == whole
    assert short.restarts == 1
    assert short.slots.per_trial == options.get("workers", 1)
    if case == "succeeded":
        assert short.best is not None
        assert (short.best.trial, short.best.value, short.best.params["net.units"]) == (1, 0.6, 16)


def test_a_run_of_one_trial_without_a_metric_has_its_parameters(folder: Path) -> None:
    run = ScriptedRun(folder, "one", total=1, metric=None).begin()
    run.add({"lr": 0.5})
    run.form(0)
    run.succeed(0, loss=0.1)
    short, whole = both_rows(ended(run))
    assert short == whole
    assert short.best is not None
    assert (short.best.value, short.best.params, short.best.metrics) == (None, {"lr": 0.5}, {"loss": 0.1})


def test_a_run_with_a_second_driver_is_read_from_its_journal(folder: Path) -> None:
    run = scripted(folder, "extended", total=3)
    for trial in range(3):
        run.succeed(trial, accuracy=0.5)
    ended(run)
    run.begin()
    run.write(DriverStarted(plan=run.plan.digest, extends=True, trials=5, at=run.at))
    reading = read_row(run.place, HandClock())
    assert reading.observer is not None
    assert (reading.row.state, reading.row.lineage.extended, reading.row.total) == ("driver gone", (None,), 5)


def test_parents_are_those_of_the_plan(folder: Path) -> None:
    checkpoint = typical(folder, "source").save(2, 300, generation=2)
    parents = {
        "origin": Origin("/runs/sweep", 3, checkpoint),
        "refit": RefitTrial("/runs/sweep", 4),
        "warm": WarmPlan(("/runs/old", "hdfs:///runs/b", "a table of 3 rows (ab)", "2 points (cd)"), (), (), None, ()),
    }
    for name, value in parents.items():
        run = ScriptedRun(folder, name, **{name: value}).begin()
        run.add({"lr": 0.1})
        run.form(0)
        run.succeed(0, accuracy=1.0)
        short, whole = both_rows(ended(run))
        assert short == whole
        links = [(parent.link, parent.directory, parent.trial) for parent in short.lineage.parents]
        expected = {
            "origin": [("refit", "/runs/sweep", 3)],
            "refit": [("refit", "/runs/sweep", 4)],
            "warm": [("warm start", "/runs/old", None), ("warm start", "hdfs:///runs/b", None)],
        }
        assert links == expected[name]


def test_a_live_run_counts_the_slots_that_it_holds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = scripted(folder, "live", total=3, workers=2)
    run.succeed(0, accuracy=0.5)
    monkeypatch.setattr("sparktrain.runs.watcher.answers", lambda driver: True)
    row = row_at(run.place)
    assert (row.state, row.slots.per_trial, row.slots.busy) == ("running", 2, 4)
    assert row.clock.since is not None
    monkeypatch.setattr("sparktrain.runs.watcher.answers", lambda driver: False)
    row = row_at(run.place)
    assert (row.state, row.slots.busy, row.clock.since) == ("driver gone", 0, None)


def test_corrupt_runs_and_those_of_another_version_have_rows_with_the_problem(folder: Path) -> None:
    newer, garbled, plans, journal, lost = (typical(folder, name) for name in ("a", "b", "c", "d", "e"))
    path = folder / "a" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 9, "gang": {"workers": 3}, "metric": 5}))
    (folder / "b" / "run.json").write_bytes(b"\xff{")
    shutil.rmtree(folder / "c" / "plans")
    spoil(folder / "d" / "journal" / "batch-0001-00000003")
    (folder / "e" / "run.json").unlink()
    typical(folder, "whole")
    rows = {run.row.id: run.row for run in list_runs(runs_of(str(folder), HandClock()).places, HandClock())}
    assert [rows[run.layout.path].state for run in (newer, garbled, plans, journal, lost)] == ["unreadable"] * 5
    assert "version 9, and this sparktrain reads version 1" in rows["a"].problem
    assert (rows["a"].label.name, rows["a"].slots.per_trial, rows["a"].label.metric) == ("a", 3, None)
    assert rows["a"].owner.host == "host-1"
    assert "no overview of a run" in rows["b"].problem
    assert "no plan of a run" in rows["c"].problem
    assert "corrupt" in rows["d"].problem
    assert "lost its run.json" in rows["e"].problem
    assert rows["whole"].state == "driver gone"


def test_results_of_a_newer_version_are_left_to_the_journal(folder: Path) -> None:
    run = scripted(folder, "run", total=3)
    for trial in range(3):
        run.succeed(trial, accuracy=0.5)
    path = Path(ended(run).directory) / "results.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
    reading = read_row(run.place, HandClock())
    assert reading.observer is not None
    assert reading.row.state == "succeeded"


def test_a_folder_of_runs_and_other_files(folder: Path) -> None:
    typical(folder, "run")
    (folder / "notes").mkdir()
    (folder / "table.csv").write_text("a,b")
    clock = HandClock()
    runs = RunFolder.of(str(folder), clock)
    assert isinstance(runs, RunFolder)
    contents = runs.look()
    assert ([place.layout.path for place in contents.places], contents.left_out) == (["run"], 2)
    typical(folder, "new")
    (folder / "notes" / "run.json").write_text("{}")
    assert [place.layout.path for place in runs.look().places] == ["new", "run"], "a new run at once"
    clock.at += 11
    assert [place.layout.path for place in runs.look().places] == ["new", "notes", "run"], "others after a while"
    shutil.rmtree(folder / "new")
    assert [place.layout.path for place in runs.look().places] == ["notes", "run"]
    alone = RunFolder.of(str(folder / "run"), clock)
    assert isinstance(alone, RunLocation)


def test_runs_in_an_object_store(tmp_path: Path) -> None:
    run = scripted(tmp_path, "run", total=3, url="memory://rows/runs")
    for trial in range(3):
        run.succeed(trial, accuracy=0.5)
    ended(run)
    run.store.put_if_absent("notes/readme.md", b"no run")
    folder = RunFolder.of("memory://rows/runs", HandClock())
    assert isinstance(folder, RunFolder)
    contents = folder.look()
    assert ([place.layout.path for place in contents.places], contents.left_out) == (["run"], 1)
    short, whole = both_rows(run)
    assert short == whole
    assert (short.state, short.label.directory) == ("succeeded", run.directory)
    again = RunFolder.of(folder.where, HandClock())
    assert isinstance(again, RunFolder)
    assert again.look().left_out == 1, "what a page prints of its directory leads there"


@pytest.mark.parametrize("kind", [PermissionError, StoreRefusedError])
def test_a_run_that_nobody_may_read_hides_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: type[PermissionError]
) -> None:
    run = typical(folder)

    def refused(*_: object) -> None:
        raise kind(13, "Permission denied")

    monkeypatch.setattr(run_list, "ended_row", refused)
    row = row_at(run.place)
    assert (row.state, row.label.name) == ("unreadable", "mnist")
    assert "Permission denied" in row.problem


def test_a_directory_that_nobody_may_read_is_refused_with_the_next_step(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typical(folder)

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(LocalStore, "entries", refused)
    with pytest.raises(RunDirectoryError, match="cannot be read: Permission denied; ask its owner"):
        RunFolder.of(str(folder), HandClock())


def test_odd_files_and_broken_runs_hide_no_other(folder: Path) -> None:
    """A directory that links to itself, with pipes and empty files in place of those of runs."""
    names = ("good", "empty", "garbage", "deep", "folder", "pipe", "results", "batch")
    for name in names:
        ended(scripted(folder, name))
    contents = {"empty": b"", "garbage": bytes(range(256)), "deep": b"[" * 200_000}
    for name, content in contents.items():
        (folder / name / "run.json").write_bytes(content)
    for path in (folder / "folder" / "run.json", folder / "pipe" / "run.json", folder / "results" / "results.json"):
        path.unlink()
    (folder / "folder" / "run.json").mkdir()
    os.mkfifo(folder / "pipe" / "run.json")
    os.mkfifo(folder / "results" / "results.json")
    first_batch = min((folder / "batch" / "journal").glob("batch-*"))
    first_batch.write_bytes(b"")
    (folder / "loop").symlink_to("loop")
    (folder / "again").symlink_to(folder)
    (folder / "nothing").symlink_to("nowhere")
    (folder / "zero").touch()
    (folder / "we\nird").mkdir()
    os.mkfifo(folder / "a pipe")
    listing = runs_of(str(folder), HandClock())
    states = {run.row.id: run.row.state for run in list_runs(listing.places, HandClock(), sizes=True)}
    unreadable = dict.fromkeys(("empty", "garbage", "deep", "folder", "pipe"), "unreadable")
    readable = dict.fromkeys(("good", "results", "batch"), "failed")  # no trial has ended
    assert states == {**readable, **unreadable}
    assert listing.left_out == 6
