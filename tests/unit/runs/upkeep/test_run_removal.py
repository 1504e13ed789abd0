"""A run is deleted as a whole, nothing else is, and a removal that was interrupted anywhere can be repeated."""

import json
import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.errors import DeposedError, RunDirectoryError
from sparktrain.rundir.journal.writer import Journal
from sparktrain.runs import history
from sparktrain.runs.locate import RunLocation, run_in
from sparktrain.runs.upkeep.run_removal import Remover
from sparktrain.runs.watcher import this_process
from sparktrain.store.localfs import LocalStore
from tests.support.mounts import bound
from tests.unit.driver.stored import HandClock, ScriptedRun, age, typical
from tests.unit.store.gated import GatedStore

HOUR_S = 3600.0
WHO = this_process(HandClock(), "rm")


@pytest.fixture
def run(tmp_path: Path) -> ScriptedRun:
    made = typical(tmp_path / "runs")
    made.end("stopped")
    return made


def remover(place: RunLocation, *, force: bool = False) -> Remover:
    age(Path(place.store.where()), 2 * HOUR_S)
    return Remover(place, HOUR_S, SystemClock(), force=force)


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


class StoreGoneError(OSError):
    pass


class FailsAt:
    """A gate that fails once, at its n-th deletion."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, name: str, work: object) -> object:
        assert callable(work)
        if name == "delete":
            self.left -= 1
            if self.left == 0:
                raise StoreGoneError
        return work()


def at_deletion(number: int, act: Callable[[], object]) -> Callable[[str, object], object]:
    """A gate that acts before the n-th deletion."""
    left = [number]

    def gate(name: str, work: object) -> object:
        assert callable(work)
        if name == "delete":
            left[0] -= 1
            if left[0] == 0:
                act()
        return work()

    return gate


def gated(run: ScriptedRun, gate: object) -> RunLocation:
    return RunLocation(GatedStore(run.store, gate), run.layout)  # type: ignore[arg-type]


# ---- what is deleted


def test_an_interrupted_removal_is_repeated(run: ScriptedRun) -> None:
    whole, number = False, 0
    while not whole:
        number += 1
        with suppress(StoreGoneError):
            remover(gated(run, FailsAt(number))).remove(WHO)
            whole = True
        if not whole:
            found = remover(run_in(run.directory, without_overview=True)).find()
            assert found.described == "the rest of a run that was being deleted"
    assert number > 3
    assert list(run.store.entries()) == []


def test_what_the_run_has_not_written_stays_and_is_named(run: ScriptedRun, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "mnist"
    foreign = (
        "notes.txt", "data/thesis.txt", "plans/holiday.json", "trials/0000/readme.md", "trials/best/model.keras",
        "journal/term-0001.bak", ".tmp-notes", "trials/0000/checkpoints/gen-0001/data/00000001-mine",
        "results.json.old",
    )  # fmt: skip
    for name in foreign:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("precious")
    (folder / "empty").mkdir()
    found = remover(run.place).find()
    assert found.usage.files == run.store.usage(run.layout.path).files - len(foreign) + 1, "no listing has .tmp-notes"
    removed = remover(run.place).remove(WHO)
    assert removed.strays == found.strays == (
        ".tmp-notes", "data/thesis.txt", "empty/", "journal/term-0001.bak", "notes.txt", "plans/holiday.json",
        "results.json.old", "trials/0000/checkpoints/gen-0001/data/00000001-mine", "trials/0000/readme.md",
        "trials/best/",
    )  # fmt: skip
    assert [name for name in everything(folder) if (folder / name).is_file()] == sorted(foreign)
    assert "kept, for it is not of this run: .tmp-notes, data/thesis.txt, empty/, " in removed.line()
    assert removed.document()["left"] == list(removed.strays)


def test_a_run_within_the_directory_stays(run: ScriptedRun, tmp_path: Path) -> None:
    for name in ("b", "data", "trials", "0000"):
        typical(tmp_path / "runs" / "mnist" / ("trials" if name == "0000" else ""), name)
    folder = tmp_path / "runs" / "mnist"
    inner = {name: everything(folder / name) for name in ("b", "data")}
    removed = remover(run.place).remove(WHO)
    assert removed.runs == ("b/",)
    assert "b/ (a run)" in removed.line()
    assert {name: everything(folder / name) for name in ("b", "data")} == inner
    for directory in (folder / "b", folder / "data", folder / "trials", folder / "trials" / "0000"):
        place = run_in(str(directory))
        assert place.has_run
        assert history.look(place.store, place.layout) is not None


def test_links_are_not_followed(run: ScriptedRun, tmp_path: Path) -> None:
    folder, kept = tmp_path / "runs" / "mnist", tmp_path / "kept"
    other = typical(tmp_path / "elsewhere" / "other")
    (kept / "0001").mkdir(parents=True)
    (kept / "run.json").write_text("kept")
    before = everything(tmp_path / "elsewhere"), everything(kept)
    (folder / "notes").symlink_to(kept)
    (folder / "data").symlink_to(Path(other.directory) / "trials")
    (folder / "trials" / "0009").symlink_to(Path(other.directory) / "trials" / "0000")
    (folder / "trials" / "0000" / "checkpoints" / "gen-0009").symlink_to(kept)
    (folder / "results-before-0001.json").symlink_to(kept / "run.json")
    removed = remover(run.place).remove(WHO)
    assert removed.strays == (
        "data", "notes", "results-before-0001.json", "trials/0000/checkpoints/gen-0009", "trials/0009",
    )  # fmt: skip
    assert (everything(tmp_path / "elsewhere"), everything(kept)) == before
    assert other.place.has_run


@pytest.mark.parametrize("place", ["trials", "trials/0000/checkpoints", "data"])
def test_no_mount_point_is_crossed(run: ScriptedRun, tmp_path: Path, place: str) -> None:
    target, source = tmp_path / "runs" / "mnist" / place, tmp_path / "source"
    target.mkdir(exist_ok=True)
    source.mkdir()
    (source / "manifest-00000001").write_text("kept")
    with bound(source, target):
        assert f"{place}/" in remover(run.place).remove(WHO).strays
        assert (source / "manifest-00000001").read_text() == "kept"


def test_a_link_to_a_run_is_none(run: ScriptedRun, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(run.directory)
    before = everything(tmp_path)
    for force in (False, True):
        with pytest.raises(RunDirectoryError, match="is a symbolic link: pass the directory that it leads to"):
            remover(run_in(str(link)), force=force).remove(WHO)
    assert everything(tmp_path) == before


# ---- what is no run

FOREIGN = {
    "another program's": b'{"command": "npm run"}',
    "with a plan": b'{"version": 1, "name": "x", "plan": "buy a house"}',
    "of sacred": b'{"experiment": {"name": "x"}, "status": "COMPLETED", "version": 1, "plan": "0123456789abcdef"}',
    "a list": b"[1, 2]",
    "a number": b"7",
    "empty": b"",
    "truncated": b'{"version": 1, "plan": "0123',
    "no text": b"\xff\xfe\x00",
    "nested": b"[" * 100_000,
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("force", [False, True])
def test_the_folder_of_another_program_stays(tmp_path: Path, content: bytes, force: bool) -> None:
    folder = tmp_path / "proj"
    for name in ("data", "journal", "plans", "trials", "code"):
        (folder / name).mkdir(parents=True)
        (folder / name / "thesis.txt").write_text("precious")
    (folder / "run.json").write_bytes(content)
    (folder / "results.json").write_text("precious")
    (folder / "journal" / "term-0001").write_text("precious")
    (folder / "plans" / "0123456789abcdef.json").write_text("precious")
    before = everything(folder)
    with pytest.raises(RunDirectoryError, match="is no run, and nothing in it is deleted, with --force or without"):
        remover(run_in(str(folder)), force=force).remove(WHO)
    assert everything(folder) == before


def test_a_huge_file_is_no_overview(tmp_path: Path) -> None:
    folder = tmp_path / "proj"
    folder.mkdir()
    with (folder / "run.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(RunDirectoryError, match=r"more than 64\.0 MiB"):
        remover(run_in(str(folder)), force=True).remove(WHO)
    assert everything(folder) == ["run.json"]


def test_a_link_to_the_overview_of_a_run_shows_nothing(run: ScriptedRun, tmp_path: Path) -> None:
    folder = tmp_path / "proj"
    folder.mkdir()
    (folder / "run.json").symlink_to(Path(run.directory) / "run.json")
    with pytest.raises(RunDirectoryError, match=r"run\.json is a symbolic link"):
        remover(run_in(str(folder)), force=True).remove(WHO)
    assert run.place.has_run


def test_a_run_with_a_corrupt_overview_is_deleted_by_force_alone(run: ScriptedRun) -> None:
    (Path(run.directory) / "run.json").write_bytes(b'{"version": 1, "pl')
    with pytest.raises(RunDirectoryError, match="or pass --force to delete the run"):
        remover(run.place).remove(WHO)
    assert remover(run.place, force=True).remove(WHO).strays == ()
    assert list(run.store.entries()) == []


def test_a_run_without_its_overview_stays(run: ScriptedRun) -> None:
    (Path(run.directory) / "run.json").unlink()
    before = run.store.list()
    with pytest.raises(RunDirectoryError, match=r"its run\.json is lost"):
        remover(run.place, force=True).remove(WHO)
    assert run.store.list() == before


# ---- others at the same time


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_driver_that_starts_meanwhile_is_refused(run: ScriptedRun, number: int) -> None:
    refused: list[str] = []

    def start() -> None:
        with pytest.raises(RunDirectoryError) as caught:
            run.begin("host-9")
        refused.append(str(caught.value))

    remover(gated(run, at_deletion(number, start))).remove(WHO)
    assert "is being deleted by process" in refused[0]
    assert list(run.store.entries()) == []


def test_a_driver_that_starts_just_before_keeps_its_run(run: ScriptedRun) -> None:
    removal = remover(run.place)
    before = run.store.list()
    with pytest.MonkeyPatch.context() as patched:
        described = Remover._described

        def late(self: Remover) -> str:
            found = described(self)
            run.begin("host-9")
            return found

        patched.setattr(Remover, "_described", late)
        with pytest.raises(RunDirectoryError, match="a driver has taken it over a moment ago, and nothing was deleted"):
            removal.remove(WHO)
    assert set(before) < set(run.store.list())
    assert not [path for path in run.store.list() if "removal" in path]
    assert run.journal is not None
    run.journal.check()


def test_a_driver_that_starts_a_new_run_of_this_name_keeps_it(run: ScriptedRun, tmp_path: Path) -> None:
    """The last files of the removal go after the new `run.json` was put, and after its driver was refused."""
    fresh: list[ScriptedRun] = []

    def start() -> None:
        fresh.append(ScriptedRun(tmp_path / "runs"))
        with pytest.raises(RunDirectoryError, match="is being deleted"):
            fresh[0].begin()

    marks = at_deletion(4, start)  # between run.json and the mark
    removed = remover(gated(run, marks)).remove(WHO)
    assert removed.strays != ()
    assert fresh[0].place.has_run
    fresh[0].begin()
    assert history.look(fresh[0].store, fresh[0].layout) is not None


def test_of_two_removals_at_the_same_time_one_deletes(run: ScriptedRun) -> None:
    other = remover(run.place)
    found = other._find()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(other, "_find", lambda: found)

        def second() -> None:
            with pytest.raises(RunDirectoryError, match="is being deleted by another process"):
                other.remove(WHO)

        remover(gated(run, at_deletion(1, second))).remove(WHO)
    assert list(run.store.entries()) == []


def test_a_removal_of_a_process_that_lives_is_not_continued(run: ScriptedRun) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        who = this_process(HandClock(), "sparktrain rm")
        living = type(who)(who.host, process.pid, who.started, who.sparktrain, purpose=who.purpose)
        with suppress(StoreGoneError):
            remover(gated(run, FailsAt(1))).remove(living)
        with pytest.raises(
            RunDirectoryError, match=rf"is being deleted by process {process.pid} on .*wait for its end"
        ):
            remover(run.place).remove(WHO)
        process.kill()
    remover(run.place).remove(WHO)
    assert list(run.store.entries()) == []


@pytest.mark.usefixtures("wrong_clock")
def test_a_removal_of_another_host_is_continued_when_it_is_old(run: ScriptedRun) -> None:
    elsewhere = type(WHO)("host-9", 1, WHO.started, WHO.sparktrain)
    with suppress(StoreGoneError):
        remover(gated(run, FailsAt(1))).remove(elsewhere)
    with pytest.raises(RunDirectoryError, match="or pass --older-than"):
        Remover(run.place, HOUR_S, SystemClock()).remove(WHO)
    remover(run.place).remove(WHO)
    assert list(run.store.entries()) == []


def test_a_driver_that_was_only_silent_learns_that_its_run_was_deleted(tmp_path: Path) -> None:
    run = typical(tmp_path / "runs")
    assert run.journal is not None
    run.journal.check()
    remover(run.place).remove(WHO)
    with pytest.raises(DeposedError, match="was deleted, or moved, while this driver ran"):
        run.journal.check()


def test_a_run_that_is_about_to_start_may_be_in_use(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path / "runs")
    with pytest.raises(RunDirectoryError, match="may be in use"):
        Remover(run.place, HOUR_S, SystemClock()).find()
    assert remover(run.place).find().described == "a sweep of 0 trials, its driver is gone"


def test_a_file_is_put_where_a_removal_deletes_the_folder_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, times = LocalStore(tmp_path), [3]
    make = LocalStore._make_folder

    def make_and_lose(self: LocalStore, folder: Path) -> None:
        make(self, folder)
        if folder.name == "mnist" and times[0]:
            times[0] -= 1
            os.rmdir(folder)

    monkeypatch.setattr(LocalStore, "_make_folder", make_and_lose)
    assert store.put_if_absent("mnist/run.json", b"{}")
    assert json.loads(store.read("mnist/run.json")) == {}
    assert Journal.claim(store, run_in(str(tmp_path / "mnist")).layout.journal, WHO)[0].term == 1
