"""What is deleted to make room, what stays, and when nothing may be deleted."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from sparktrain.base.clock import SystemClock
from sparktrain.errors import DeposedError, RunDirectoryError, SpecError
from sparktrain.rundir.checkpoints import fetch
from sparktrain.rundir.journal.reader import read
from sparktrain.rundir.journal.writer import Journal
from sparktrain.rundir.metric_log import block_paths, read_blocks
from sparktrain.rundir.report_parts import joined_tables, part_of, table_of_part
from sparktrain.runs import watcher
from sparktrain.runs.upkeep.gc import KeepPolicy, Orphan, Tidier, keep_of
from sparktrain.runs.watcher import this_process
from sparktrain.store.localfs import LocalStore
from tests.unit.driver.stored import BEGUN, HandClock, ScriptedRun, age, looked_at, typical

HOUR_S = 3600.0
DEAD = f"{7:032x}"
"""An attempt to write a checkpoint that has failed."""


@pytest.fixture
def run(tmp_path: Path) -> ScriptedRun:
    """Trials 0 and 2 have succeeded, with three and two checkpoints; trial 3 was stopped, with one."""
    run = typical(tmp_path / "runs")
    run.save(2, 200, generation=2)
    run.succeed(2, accuracy=0.95)
    run.form(3)
    run.save(3, 100)
    run.fail(3)  # as far as the first driver knows
    return run


def tidier(
    run: ScriptedRun, keep: KeepPolicy = KeepPolicy.EACH, older_than_s: float = HOUR_S, after_s: float = 2 * HOUR_S
) -> Tidier:
    age(Path(run.store.where()), after_s)
    return Tidier(run.place, keep, older_than_s, SystemClock())


def kept(run: ScriptedRun) -> dict[int, list[int]]:
    """Steps of the checkpoints that count, by trial; each of them can be read."""
    return {
        trial.result.id: [each.step for each in trial.checkpoints]
        for trial in looked_at(run).trials
        if trial.checkpoints
    }


def manifests(run: ScriptedRun) -> list[str]:
    return [path.partition("trials/")[2] for path in run.store.list("mnist/trials") if "manifest-" in path]


def test_reports_that_a_joined_part_repeats(run: ScriptedRun) -> None:
    for step in range(3):
        run.note(0, step, loss=0.5)
    parts = block_paths(run.store, run.layout)
    tables = [table_of_part(run.store.read(path)) for path in parts]
    name = run.layout.reports.name_of(parts[0])
    assert name is not None
    joined = run.layout.reports.block(name._replace(last=2))
    run.store.put_if_absent(joined, part_of(joined_tables(tables[:2])))  # and there the driver died
    run.end()
    for path in run.store.list(run.layout.reports.path):
        os.utime(run.store.where(path), (BEGUN, BEGUN))
    found = tidier(run).tidy(this_process(HandClock(), "gc"))
    assert [each.file for each in found.orphans] == list(parts[:2])
    assert run.store.list(run.layout.reports.path) == sorted([joined, parts[2]])
    assert [row.step for row in read_blocks(run.store, run.layout)[1]] == [0, 1, 2]


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (KeepPolicy.EACH, {0: [200], 2: [200], 3: [100]}),
        (KeepPolicy.BEST, {2: [200]}),
        (KeepPolicy.NONE, {}),
    ],
)
def test_checkpoints_of_trials_with_a_result(
    run: ScriptedRun, keep: KeepPolicy, expected: dict[int, list[int]]
) -> None:
    run.end()
    before = kept(run)
    tidied = tidier(run, keep).tidy(this_process(HandClock(), "gc"))
    assert kept(run) == expected
    dropped = [(each.trial, each.checkpoint.step) for each in tidied.dropped]
    assert dropped == [(t, step) for t, steps in before.items() for step in steps if step not in expected.get(t, [])]
    left = [path for path in run.store.list("mnist/trials") if "/data/" in path]
    assert len(left) == 2 * len(manifests(run)) == 2 * sum(map(len, expected.values()))
    assert tidied.size == 3002 * len(dropped)


def test_the_best_checkpoint_of_a_trial_stays_beside_the_newest(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path / "runs").begin()
    run.add({"lr": 0.1})
    run.form(0)
    for step, score in ((1, 0.9), (2, 0.5), (3, 0.6)):
        run.save(0, step, score=score)
    run.succeed(0, accuracy=0.6)
    run.end()
    tidier(run).tidy(this_process(HandClock(), "gc"))
    assert kept(run) == {0: [1, 3]}


def test_trials_that_would_be_resumed_keep_everything(tmp_path: Path) -> None:
    run = typical(tmp_path / "runs")
    run.save(2, 200, generation=2)
    tidier(run, KeepPolicy.NONE).tidy(this_process(HandClock(), "gc"))
    assert kept(run) == {2: [100, 200]}


def test_a_dry_run_writes_nothing(run: ScriptedRun) -> None:
    run.end()
    before = run.store.list()
    found = tidier(run).find()
    assert run.store.list() == before
    assert [(each.trial, each.checkpoint.step) for each in found.dropped] == [(0, 100), (2, 100)]
    assert found.lines()[0].startswith("mnist: would delete 2 checkpoints: 5.9 KiB; the journal has ")


@pytest.mark.usefixtures("wrong_clock")
def test_orphans_and_unpublished_files_are_deleted_when_they_are_old(run: ScriptedRun) -> None:
    run.end()
    now = os.stat(run.store.root).st_mtime
    folder = "mnist/trials/0000/checkpoints/gen-0001"
    for name in (f"data/00000300-{DEAD}.model", "manifest-00000400", f"data/00000500-{DEAD}.model"):
        run.store.put_if_absent(f"{folder}/{name}", b"12345")
    unpublished = run.store.root / folder / f".tmp-{0:032x}"
    young = run.store.root / folder / f".tmp-{1:032x}"
    for path in (unpublished, young):
        path.write_bytes(b"123")
    for path in (
        run.store.root / folder / f"data/00000300-{DEAD}.model",
        run.store.root / folder / "manifest-00000400",
    ):
        os.utime(path, (now - 2 * HOUR_S,) * 2)
    os.utime(unpublished, (now - 2 * HOUR_S,) * 2)
    tidied = Tidier(run.place, KeepPolicy.EACH, HOUR_S, SystemClock()).tidy(this_process(HandClock(), "gc"))
    assert [each.file.removeprefix(f"{folder}/") for each in tidied.orphans] == [
        "manifest-00000400",
        f"data/00000300-{DEAD}.model",
    ]
    assert [each.size for each in tidied.unpublished] == [3]
    assert (unpublished.exists(), young.exists()) == (False, True)
    assert run.store.exists(f"{folder}/data/00000500-{DEAD}.model")


def test_files_of_others_and_behind_links_stay(run: ScriptedRun, tmp_path: Path) -> None:
    run.end()
    folder, elsewhere = run.store.root / "mnist", tmp_path / "elsewhere"
    inner = typical(tmp_path / "within" / "runs", "b")
    shutil.move(inner.directory, folder / "b")
    (elsewhere / "data").mkdir(parents=True)
    for name in (f"data/00000300-{DEAD}.model", "manifest-00000400", f".tmp-{0:032x}"):
        (elsewhere / name).touch()
    foreign = (
        "data/thesis.txt", "data/x-0123456789ab/thesis.txt", ".tmp-notes", f"b/.tmp-{0:032x}",
        f"notes/.tmp-{0:032x}", "trials/0000/checkpoints/gen-0001/data/00000300-mine.txt",
    )  # fmt: skip
    for name in foreign:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "trials/0000/checkpoints/gen-0009").symlink_to(elsewhere)
    (folder / "feeds").symlink_to(elsewhere)
    for path in (*folder.rglob("*"), *elsewhere.rglob("*")):
        os.utime(path, (0, 0), follow_symlinks=False)
    before = sorted(elsewhere.rglob("*")), sorted((folder / "b").rglob("*"))
    tidied = tidier(run).tidy(this_process(HandClock(), "gc"))
    assert (tidied.orphans, tidied.unpublished) == ((), ())
    assert all((folder / name).exists() for name in foreign)
    assert (sorted(elsewhere.rglob("*")), sorted((folder / "b").rglob("*"))) == before


def test_a_link_in_place_of_the_trials_is_not_followed(run: ScriptedRun, tmp_path: Path) -> None:
    run.end()
    trials = run.store.root / "mnist" / "trials"
    shutil.move(trials, tmp_path / "trials")
    trials.symlink_to(tmp_path / "trials")
    before = sorted((tmp_path / "trials").rglob("*"))
    assert tidier(run, KeepPolicy.NONE).tidy(this_process(HandClock(), "gc")).dropped == ()
    assert sorted((tmp_path / "trials").rglob("*")) == before


def fetched(run: ScriptedRun, folder: Path) -> dict[int, list[int]]:
    """The checkpoints of `kept`, after every byte of them was read as a resuming agent reads it."""
    for trial in looked_at(run).trials:
        for each in trial.checkpoints:
            fetch(run.store, each, folder / f"{trial.result.id}-{each.step}")
    return kept(run)


@pytest.mark.parametrize("keep", list(KeepPolicy))
def test_old_checkpoints_that_stay_keep_their_files(run: ScriptedRun, tmp_path: Path, keep: KeepPolicy) -> None:
    run.end()
    for path in run.store.list():
        os.utime(run.store.root / path, (0, 0))
    expected = {KeepPolicy.EACH: {0: [200], 2: [200], 3: [100]}, KeepPolicy.BEST: {2: [200]}, KeepPolicy.NONE: {}}[keep]
    tidied = tidier(run, keep).tidy(this_process(HandClock(), "gc"))
    assert fetched(run, tmp_path / "fetched") == expected
    assert (tidied.orphans, tidied.corrupt, tidied.code) == ((), (), 0)


def test_nothing_that_a_kept_checkpoint_names_is_deleted_whatever_was_found(run: ScriptedRun, tmp_path: Path) -> None:
    """A wrong list of what is left over, as a mistake here once made it, does no harm."""
    run.end()
    files = [path for path in run.store.list() if "/checkpoints/" in path]
    found, patient = tidier(run).find(), tidier(run)
    wrong = replace(found, orphans=tuple(Orphan(path, path, 0) for path in files))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patient, "find", lambda: wrong)
        patient.tidy(this_process(HandClock(), "gc"))
    assert fetched(run, tmp_path / "fetched") == {0: [200], 2: [200], 3: [100]}


def test_a_corrupt_checkpoint_that_stays_is_reported(run: ScriptedRun) -> None:
    run.end()
    [shard] = [path for path in run.store.list("mnist/trials/0003") if path.endswith(".model.safetensors")]
    run.store.delete(shard)
    tidied = tidier(run).tidy(this_process(HandClock(), "gc"))
    [line] = [line for line in tidied.lines() if "fsck" in line]
    assert "of step 100 is corrupt: shard model.safetensors is missing" in line
    assert (tidied.code, len(tidied.document()["corrupt"])) == (7, 1)


def test_the_journal_is_compacted(run: ScriptedRun) -> None:
    run.end()
    before, after = tidier(run, KeepPolicy.NONE).tidy(this_process(HandClock(), "gc")).records
    assert len(read(run.store, run.layout.journal).records) == after < before
    assert looked_at(run).complete


def test_a_run_whose_driver_answers_is_refused(run: ScriptedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "answers", lambda who: True)
    with pytest.raises(RunDirectoryError, match="is in use by process 4711 on host-1"):
        tidier(run).find()


@pytest.mark.usefixtures("wrong_clock")
def test_a_driver_with_a_recent_record_may_be_cut_off(run: ScriptedRun) -> None:
    with pytest.raises(RunDirectoryError, match=r"may be in use.*but wrote a record 1:00 ago.*--older-than 60s"):
        tidier(run, after_s=60).tidy(this_process(HandClock(), "gc"))
    assert read(run.store, run.layout.journal).term == 1, "no driver was deposed"
    assert tidier(run, after_s=60, older_than_s=60).find().dropped


def test_a_run_that_was_tidied_up_on_this_host_is_idle(run: ScriptedRun) -> None:
    tidier(run).tidy(this_process(SystemClock(), "sparktrain gc"))
    assert tidier(run, after_s=0.0).find().dropped == ()
    elsewhere = structs.replace(this_process(SystemClock(), "sparktrain gc"), host="host-9")
    Journal.claim(run.store, run.layout.journal, elsewhere)
    with pytest.raises(RunDirectoryError, match="may be in use"):
        tidier(run, after_s=0.0).find()


def test_a_run_that_is_about_to_start_may_be_in_use(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path / "runs")
    with pytest.raises(RunDirectoryError, match="may be in use"):
        Tidier(run.place, KeepPolicy.EACH, HOUR_S, SystemClock()).find()


class InterruptedStore(LocalStore):
    """Another process acts before the first file is deleted."""

    first: Callable[[], object] | None = None

    def delete(self, path: str) -> None:
        if self.first is not None and "/probe-" not in path:
            first, self.first = self.first, None
            first()
        super().delete(path)


def test_a_driver_that_starts_meanwhile_stops_it(run: ScriptedRun) -> None:
    run.end()
    for step in range(300, 600, 10):
        run.store.put_if_absent(f"mnist/trials/0000/checkpoints/gen-0001/data/{step:08d}-dead.model", b"")
    store = InterruptedStore(run.store.root)
    store.first = run.begin
    place = type(run.place)(store, run.layout)
    age(store.root, HOUR_S)
    with pytest.raises(DeposedError):
        Tidier(place, KeepPolicy.EACH, HOUR_S / 2, SystemClock()).tidy(this_process(HandClock(), "gc"))
    assert kept(run) == {0: [200], 2: [200], 3: [100]}


@pytest.mark.parametrize("value", ["all", ""])
def test_a_keep_policy_is_one_of_three(value: str) -> None:
    with pytest.raises(SpecError, match="must be one of each, best, none"):
        keep_of(value)


def test_no_trial_is_the_best_without_a_metric(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path / "runs", metric=None).begin()
    run.add({"lr": 0.1}, {"lr": 0.2})
    for trial in (0, 1):
        run.form(trial)
        run.save(trial, 10)
        run.succeed(trial, loss=0.1)
    run.end()
    with pytest.raises(SpecError, match="has no metric, so that no trial is its best"):
        Tidier(run.place, KeepPolicy.BEST, HOUR_S, HandClock(BEGUN + 2 * HOUR_S)).find()
