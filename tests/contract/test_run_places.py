"""One run directory by each way in which it gets another name: it is the same run, or a copy that is a run of its own.

In each case all files that the run needs are in the directory by which it was opened, and no other one changes.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import fsspec
import pyarrow as pa
import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import Generation, Member, RunId, TrialId
from sparktrain.display.status_view import state_words
from sparktrain.rundir.checkpoints import Draft, collect_garbage, fetch, write
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.run_claim import tracked_id
from sparktrain.rundir.journal.writer import Journal, newest_driver
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.dataset_files import corrupt_files, manifests_of, unnamed_files
from sparktrain.runs.history import look
from sparktrain.runs.locate import RunLocation, run_in
from sparktrain.runs.upkeep.fsck import RunExaminer
from sparktrain.runs.upkeep.idle_run import check_idle
from sparktrain.runs.watcher import Observer
from sparktrain.state.records import CheckpointAcknowledged, GangFormed
from sparktrain.state.recovery import folded
from sparktrain.store.localfs import LocalStore
from tests.support.written_data import written
from tests.unit.driver.stored import ScriptedRun, typical

WHO = DriverIdentity("host-9", 99, 1.5, "0.1.0")
TRIAL = TrialId(2)
"""The trial of `typical` that is not over."""


@pytest.fixture
def original(tmp_path: Path) -> ScriptedRun:
    return typical(tmp_path / "runs")


def id_of(run: ScriptedRun) -> str:
    assert run.journal is not None
    return run.journal.run


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def train_on(place: RunLocation, scratch: Path) -> Journal:
    """What a driver and an agent do that resume the trial: read its checkpoint, write the next, and delete the rest."""
    journal, contents = Journal.claim(place.store, place.layout.journal, WHO)
    trial = folded(contents.records).trials[TRIAL]
    checkpoints = trial.checkpoints
    generation = Generation(trial.generation + 1)
    journal.append([GangFormed(trial=TRIAL, generation=generation, hosts=("host-9",))])
    assert checkpoints.newest is not None
    fetch(place.store, checkpoints.newest, scratch / uuid4().hex)
    draft = scratch / uuid4().hex
    draft.mkdir()
    (draft / "state.json").write_bytes(b"{}")
    member = Member(RunId(place.layout.path), TRIAL, generation)
    saved = write(place.store, place.layout, Draft(member, 100 * generation, draft))
    journal.append([CheckpointAcknowledged(trial=TRIAL, checkpoint=saved)])
    checkpoints.acknowledge(saved)
    collect_garbage(place.store, place.layout, TRIAL, checkpoints.retained, generation)
    return journal


def check(place: RunLocation, scratch: Path) -> Journal:
    """All that the run needs is in its directory, before and after another driver has it."""
    for resumed in (False, True):
        examined = RunExaminer(place, False, lambda size, total: None).examine()
        assert (examined.code, examined.findings) == (0, ()), examined.findings
        stored = look(place.store, place.layout)
        assert stored is not None
        assert stored.plan.spec["name"] == place.layout.path, "members write into the folder of this name"
        for trial in stored.sweep().trials.values():
            for checkpoint in trial.checkpoints.retained:
                assert checkpoint.manifest.startswith(f"{place.layout.path}/trials/")
                assert place.store.exists(checkpoint.manifest)
        if not resumed:
            journal = train_on(place, scratch)
    return journal


def renamed(folder: Path) -> str:
    os.rename(folder, folder.parent / "other")
    return str(folder.parent / "other")


def moved(folder: Path) -> str:
    (folder.parents[1] / "archive").mkdir()
    os.rename(folder, folder.parents[1] / "archive" / folder.name)
    return str(folder.parents[1] / "archive" / folder.name)


def linked(folder: Path) -> str:
    (folder.parent / "link").symlink_to(folder)
    return str(folder.parent / "link")


def linked_above(folder: Path) -> str:
    (folder.parents[1] / "link").symlink_to(folder.parent)
    return str(folder.parents[1] / "link" / folder.name)


SAME: list[Callable[[Path], str]] = [
    renamed,
    moved,
    linked,
    linked_above,
    lambda folder: f"{folder}/",
    lambda folder: f"file://{folder}",
    lambda folder: f"{folder.parent}//{folder.name}",
    lambda folder: f"{folder.parent}/./{folder.name}",
    lambda folder: f"{folder.parent}/../{folder.parent.name}/{folder.name}",
]


@pytest.mark.parametrize("reach", SAME)
def test_a_directory_with_another_name_is_the_same_run(
    original: ScriptedRun, tmp_path: Path, reach: Callable[[Path], str]
) -> None:
    place = run_in(reach(tmp_path / "runs" / "mnist"))
    assert newest_driver(place.store, place.layout.journal) is not None
    assert check(place, tmp_path).run == id_of(original)


@pytest.fixture
def mount_point(tmp_path: Path) -> Iterator[Path]:
    (target := tmp_path / "mounted").mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "--bind", tmp_path / "runs", target], check=False).returncode:
        pytest.skip("a bind mount needs root")
    yield target
    subprocess.run(["umount", target], check=True)


def test_a_bind_mount_is_the_same_run(original: ScriptedRun, mount_point: Path, tmp_path: Path) -> None:
    assert check(run_in(str(mount_point / "mnist")), tmp_path).run == id_of(original)


@pytest.mark.parametrize("target", ["other", "elsewhere/mnist", "a 'b' #1?%20é [x]/mnist"])
@pytest.mark.parametrize("copy_file", [shutil.copy2, os.link])
def test_a_copy_is_a_run_of_its_own(
    original: ScriptedRun, tmp_path: Path, target: str, copy_file: Callable[[str, str], object]
) -> None:
    folder = tmp_path / "runs" / "mnist"
    shutil.copytree(folder, tmp_path / "runs" / target, copy_function=copy_file)
    before = content_of(folder)
    place = run_in(str(tmp_path / "runs" / target))
    assert newest_driver(place.store, place.layout.journal) is None, "the driver of the original has another directory"
    view = Observer(place, SystemClock()).look()
    assert state_words(view, 0.0) == "a copy of a run, which no driver has resumed"
    assert tracked_id(place.store, place.layout.journal) != id_of(original)
    check_idle(view, place, 1e9)
    journal = check(place, tmp_path)
    assert journal.run != id_of(original)
    assert content_of(folder) == before
    assert Journal.claim(place.store, place.layout.journal, WHO)[0].run == journal.run, "from then on it is one run"
    assert check(original.place, tmp_path).run == id_of(original)


def test_the_first_driver_of_a_copy_says_so_in_one_line(original: ScriptedRun, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "runs" / "mnist", tmp_path / "runs" / "other")
    place = run_in(str(tmp_path / "runs" / "other"))
    journal, contents = Journal.claim(place.store, place.layout.journal, WHO)
    assert contents.notes == (
        f"run directory {place.where} is a copy of {original.directory}, or moved: it is a run of its own now, with "
        f"the id {journal.run}",
    )
    assert Journal.claim(place.store, place.layout.journal, WHO)[1].notes == ()


def test_two_copies_are_two_runs_also_without_the_original(original: ScriptedRun, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "mnist"
    copies = [tmp_path / "runs" / name for name in ("first", "second")]
    for copy in copies:
        shutil.copytree(folder, copy)
    shutil.rmtree(folder)
    ids = {check(run_in(str(copy)), tmp_path).run for copy in copies}
    assert len(ids | {id_of(original)}) == 3


def test_a_copy_in_the_place_of_the_original_is_another_run(original: ScriptedRun, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "mnist"
    os.rename(folder, tmp_path / "runs" / "backup")
    shutil.copytree(tmp_path / "runs" / "backup", folder)
    copy = check(run_in(str(folder)), tmp_path).run
    assert check(run_in(str(tmp_path / "runs" / "backup")), tmp_path).run == id_of(original) != copy


@pytest.mark.usefixtures("aws")
def test_a_copy_in_another_store_is_a_run_of_its_own(
    original: ScriptedRun, tmp_path: Path, s3_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    folder = tmp_path / "runs" / "mnist"
    before = content_of(folder)
    url = f"s3://runs/{uuid4().hex}/moved"
    fsspec.filesystem("s3", endpoint_url=s3_server).put(f"{folder}/", f"{url}/", recursive=True)
    journal = check(run_in(url), tmp_path)
    assert journal.run != id_of(original)
    assert content_of(folder) == before
    for spelling in (f"{url}/", url.replace("s3://", "s3a://")):
        assert check(run_in(spelling), tmp_path).run == journal.run


def test_runs_of_the_version_before_are_read_where_they_are_and_each_copy_is_another_run(
    original: ScriptedRun, tmp_path: Path
) -> None:
    for term in (tmp_path / "runs" / "mnist" / "journal").glob("term-*"):  # the fields that it did not write
        text = term.read_text()
        term.write_text(text[: text.index(',"run":')] + "}")
    shutil.copytree(tmp_path / "runs" / "mnist", tmp_path / "copies" / "mnist")
    os.rename(tmp_path / "runs" / "mnist", tmp_path / "runs" / "other")
    shutil.copytree(tmp_path / "copies" / "mnist", tmp_path / "runs" / "mnist")
    places = [run_in(str(tmp_path / folder)) for folder in ("runs/other", "runs/mnist", "copies/mnist")]
    assert len({check(place, tmp_path).run for place in places}) == 3


def test_datasets_of_a_renamed_run_are_its_own(tmp_path: Path) -> None:
    written(pa.table({"x": [1.0, 2.0]}), tmp_path / "runs")
    os.rename(tmp_path / "runs" / "run", tmp_path / "runs" / "other")
    store = LocalStore(tmp_path / "runs")
    layout = RunLayout("other")
    assert list(corrupt_files(store, layout, fast=False)) == []
    assert unnamed_files(store, layout) == [], "gc deletes these"
    assert [file.path.partition("/")[0] for _, manifest in manifests_of(store, layout) for file in manifest.files] == [
        "other"
    ]
