"""The commands about whole runs, on real run directories that no Spark has written."""

import json
import sys
from pathlib import Path

import pytest

from sparktrain import cli
from sparktrain.cli import runs_commands
from tests.unit.driver.stored import ScriptedRun, age, spoil, typical

Capture = pytest.CaptureFixture[str]
BATCH = "journal/batch-0001-00000003"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def ended(run: ScriptedRun, **metrics: float) -> ScriptedRun:
    run.succeed(2, **metrics)
    run.form(3)
    run.fail(3)
    run.end()
    return run


def output_of(capfd: Capture, *words: str) -> str:
    assert cli.main(words) == 0
    return capfd.readouterr().out


def refusal(capfd: Capture, *words: str) -> str:
    assert cli.main(words) == 2
    return capfd.readouterr().err


def names(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines]


# ---- ls


def test_ls_lists_state_best_age_and_size(folder: Path, capfd: Capture) -> None:
    ended(typical(folder, "first"), accuracy=0.95)
    typical(folder, "second")
    lines = output_of(capfd, "ls", str(folder)).splitlines()
    columns = ["run", "state", "trials", "failed", "best", "started", "duration", "restarts", "size"]
    assert lines[0].split() == columns
    assert names(lines) == ["run", "first", "second"]
    assert "succeeded       4/4       2  accuracy 0.9500  " in lines[1]
    assert " days ago  " in lines[1]
    assert lines[1].endswith(" KiB")
    assert "driver gone     2/4       1  accuracy 0.9000" in lines[2]


def test_ls_names_the_user_of_the_newest_driver(folder: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_USER", "ada")
    ended(typical(folder), accuracy=0.95)
    output_of(capfd, "gc", str(folder / "mnist"))  # takes the run over
    [header, line] = output_of(capfd, "ls", str(folder)).splitlines()
    assert header.split()[-1] == "owner"
    assert line.split()[-1] == "ada"


def test_ls_sorts_and_filters(folder: Path, capfd: Capture) -> None:
    ended(typical(folder, "b-old"), accuracy=0.91)
    ended(typical(folder, "a-best"), accuracy=0.99)
    typical(folder, "c-gone").store.put_if_absent("c-gone/large", b"x" * 2**20)

    def listed(*words: str) -> list[str]:
        return names(output_of(capfd, "ls", str(folder), *words).splitlines()[1:])

    assert listed("--sort", "best") == ["a-best", "b-old", "c-gone"]
    assert listed("--sort", "size")[0] == "c-gone"
    assert listed("--sort", "name") == listed() == ["a-best", "b-old", "c-gone"]
    assert listed("--state", "succeeded", "--state", "running") == ["a-best", "b-old"]
    assert "size" not in output_of(capfd, "ls", str(folder), "--no-size").splitlines()[0]
    assert "--sort (age) must be one of started, name, best, size" in refusal(capfd, "ls", str(folder), "--sort", "age")
    assert "--state (dead) must be one of running" in refusal(capfd, "ls", str(folder), "--state", "dead")


def test_ls_names_runs_that_cannot_be_read_and_shows_the_others(folder: Path, capfd: Capture) -> None:
    typical(folder, "spoilt")
    spoil(folder / "spoilt" / BATCH)
    typical(folder, "whole")
    lines = output_of(capfd, "ls", str(folder)).splitlines()
    assert names(lines) == ["run", "whole", "spoilt:"]
    document = json.loads(output_of(capfd, "ls", str(folder), "--json"))
    [run] = document["runs"]
    assert (run["name"], run["files"] > 5, run["size"] > 1000) == ("whole", True, True)
    assert [each["name"] for each in document["problems"]] == ["spoilt"]


def test_ls_counts_what_is_no_run_beside_the_runs(folder: Path, capfd: Capture) -> None:
    typical(folder, "whole")
    (folder / "notes.txt").write_text("not a run")
    assert output_of(capfd, "ls", str(folder)).splitlines()[-1] == "1 other file or folder is no run"
    (folder / "data").mkdir()
    assert output_of(capfd, "status", str(folder)).splitlines()[-1] == "2 other files and folders are no runs"
    assert json.loads(output_of(capfd, "ls", str(folder), "--json"))["left_out"] == 2


def test_ls_of_what_is_no_run(tmp_path: Path, capfd: Capture) -> None:
    assert "there is no such directory" in refusal(capfd, "ls", str(tmp_path / "none"))


# ---- rm


def answering(monkeypatch: pytest.MonkeyPatch, answer: bool) -> list[str]:
    asked: list[str] = []

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(runs_commands.typer, "confirm", confirm)
    return asked


def test_rm_asks_and_deletes_the_whole_directory(folder: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ended(typical(folder), accuracy=0.95)
    typical(folder, "other")
    asked = answering(monkeypatch, True)
    out = output_of(capfd, "rm", run.directory)
    assert asked == ["Delete this run for good?"]
    assert out.startswith(f"deleted {run.directory}: a sweep of 4 trials, succeeded, ")
    assert [each.name for each in folder.iterdir()] == ["other"]


def test_rm_deletes_nothing_without_a_yes(folder: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ended(typical(folder), accuracy=0.95)
    before = run.store.usage()
    answering(monkeypatch, False)
    assert output_of(capfd, "rm", run.directory) == ""
    assert "would delete" in output_of(capfd, "rm", run.directory, "--dry-run")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    assert "stdin is no terminal: pass --yes" in refusal(capfd, "rm", run.directory)
    assert run.store.usage() == before


def test_rm_refuses_a_run_that_may_have_a_driver_and_then_deletes_no_other(
    folder: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = ended(typical(folder, "over"), accuracy=0.95)
    owned = typical(folder, "owned")
    monkeypatch.setattr("sparktrain.runs.watcher.answers", lambda driver: True)
    problem = refusal(capfd, "rm", over.directory, owned.directory, "--yes")
    assert "is in use by process 4711 on host-1: stop that process" in problem
    monkeypatch.setattr("sparktrain.runs.watcher.answers", lambda driver: False)
    assert "pass --older-than" in refusal(capfd, "rm", owned.directory, "--yes")
    assert sorted(each.name for each in folder.iterdir()) == ["over", "owned"]
    age(folder, 3601.0)
    output_of(capfd, "rm", over.directory, owned.directory, over.directory, "--yes")
    assert list(folder.iterdir()) == []


def test_rm_deletes_an_unreadable_run_by_force_alone(folder: Path, capfd: Capture) -> None:
    run = typical(folder)
    spoil(folder / "mnist" / BATCH)
    step = "pass --force to delete the run when you know that no driver runs"
    assert step in refusal(capfd, "rm", run.directory, "--yes")
    document = json.loads(output_of(capfd, "rm", run.directory, "--yes", "--force", "--json"))
    assert [each["removed"] for each in document["runs"]] == [True]
    assert list(folder.iterdir()) == []


def test_rm_refuses_what_is_not_one_run(folder: Path, capfd: Capture) -> None:
    run = ended(typical(folder), accuracy=0.95)
    before = run.store.usage()
    assert "is part of a run" in refusal(capfd, "rm", f"{run.directory}/trials", "--yes")
    assert "pass the directory of one of them (mnist)" in refusal(capfd, "rm", str(folder), "--yes")
    assert run.store.usage() == before


def test_rm_leaves_the_folder_of_another_program_alone(tmp_path: Path, capfd: Capture) -> None:
    project = tmp_path / "proj"
    (project / "data").mkdir(parents=True)
    (project / "run.json").write_text('{"command": "npm run"}')
    (project / "data" / "thesis.txt").write_text("precious")
    for words in (["--yes"], ["--yes", "--force"], ["--dry-run", "--force"]):
        assert "is no run, and nothing in it is deleted" in refusal(capfd, "rm", str(project), *words)
    assert sorted(path.name for path in project.rglob("*")) == ["data", "run.json", "thesis.txt"]


def test_rm_names_what_it_leaves(folder: Path, capfd: Capture) -> None:
    run = ended(typical(folder), accuracy=0.95)
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "thesis.txt").write_text("precious")
    (Path(run.directory) / "notes").symlink_to(elsewhere)
    document = json.loads(output_of(capfd, "rm", run.directory, "--yes", "--json"))
    assert [(each["removed"], each["left"]) for each in document["runs"]] == [(True, ["notes"])]
    assert (elsewhere / "thesis.txt").exists()
    assert "it has notes/, and neither run.json" in refusal(capfd, "rm", run.directory, "--yes")


# ---- diff


def test_diff_shows_what_is_different_by_subject(folder: Path, capfd: Capture) -> None:
    one = typical(folder, "one")
    other = ScriptedRun(folder, "two", metric="loss", mode="min", timeout_s=60.0).begin()
    lines = output_of(capfd, "diff", one.directory, other.directory).splitlines()
    assert lines[:2] == [f"- {one.directory}", f"+ {other.directory}"]
    assert [line for line in lines if line.endswith(":")] == ["metric:", "options:"]
    assert "    metric: accuracy -> loss" in lines
    assert "    + timeout_s: 60.0" in lines
    document = json.loads(output_of(capfd, "diff", one.directory, other.directory, "--json"))
    assert list(document["differences"]) == ["metric", "options"]


def test_diff_of_a_run_with_itself_finds_nothing(folder: Path, capfd: Capture) -> None:
    run = typical(folder)
    out = output_of(capfd, "diff", run.directory, run.directory)
    assert out.splitlines()[-1] == "the same code, space, data, options and versions"


def test_diff_refuses_what_is_no_run(folder: Path, capfd: Capture) -> None:
    run = typical(folder)
    assert "is no run directory" in refusal(capfd, "diff", run.directory, str(folder / "none"))
