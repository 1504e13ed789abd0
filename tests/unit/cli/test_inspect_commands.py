"""The commands that inspect a run directory, on real ones that no Spark has written."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sparktrain import cli
from sparktrain.cli import common, inspect_commands, upkeep_commands
from sparktrain.cli.common import Output
from sparktrain.display import watch
from sparktrain.runs import logs, watcher
from tests.unit.driver.stored import ScriptedRun, spoil, typical

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def run(tmp_path: Path) -> ScriptedRun:
    return typical(tmp_path / "runs")


def ended(run: ScriptedRun) -> None:
    run.succeed(2, accuracy=0.95)
    run.form(3)
    run.fail(3)
    run.end()


def output_of(capfd: Capture, *words: str) -> str:
    assert cli.main(words) == 0
    return capfd.readouterr().out


def test_status_of_a_run_whose_driver_is_gone(run: ScriptedRun, capfd: Capture) -> None:
    lines = output_of(capfd, "status", run.directory).splitlines()
    assert lines[0].startswith("mnist  its driver is gone, last record ")
    assert "process 4711 on host-1" in lines[1]
    assert lines[2] == "2 of 4 trials done  1 was running  1 queued  1 failed"
    assert lines[3] == "best so far  accuracy 0.9000  trial 0  lr=1 dropout=0.5"
    [row] = [line for line in lines if line.startswith("    2  ")]
    for cell in ("150", "accuracy 0.5000, loss 1.2000", "after 100 steps, ", "host-3 ", "lr=0.01 dropout=0.5"):
        assert cell in row
    assert any(line.startswith("trial 2, restart 1: rank 0 on host-2: agent on host-2 was lost") for line in lines)
    assert any(line.startswith("trial 1 failed after 2.0 s: ValueError: units") for line in lines)
    assert lines[-1] == f"resume with: sparktrain resume {run.directory}"
    assert not any("\x1b" in line for line in lines)


def test_status_without_a_directory_looks_where_runs_are_made(
    tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["status"]) == 2
    assert "sparktrain-runs is no run directory" in capfd.readouterr().err
    typical(tmp_path / "sparktrain-runs")
    assert "mnist  driver gone" in output_of(capfd, "status")


def test_a_driver_on_another_host_may_be_cut_off(tmp_path: Path, capfd: Capture) -> None:
    run = ScriptedRun(tmp_path / "runs").begin("host-9", address="127.0.0.1:9")
    assert "its driver does not answer from here" in output_of(capfd, "status", run.directory)


def test_status_of_a_run_that_has_ended_is_its_table(run: ScriptedRun, capfd: Capture) -> None:
    ended(run)
    out = output_of(capfd, "status", run.directory)
    assert out.startswith("mnist: succeeded. 4 trials, 2 failed, in 1:20. Best accuracy 0.9500: trial 2.\n")
    assert "resume with" not in out


def test_status_of_a_run_of_one_gang_shows_its_model(tmp_path: Path, capfd: Capture) -> None:
    run = ScriptedRun(tmp_path / "runs", "big", total=1, workers=2).begin()
    run.add({"lr": 0.1})
    run.form(0, hosts=("host-2", "host-3"))
    assert "host-2, host-3" in output_of(capfd, "status", run.directory)
    run.store.put_if_absent("big/trials/0000/generation-1/rank-0/model.keras", b"")
    run.succeed(0, accuracy=0.5)
    run.end()
    out = output_of(capfd, "status", run.directory)
    assert out.startswith("big: succeeded in 0.0 s on 2 members.\nmetrics: accuracy 0.5000\nmodel: ")


def test_status_as_json(run: ScriptedRun, capfd: Capture) -> None:
    status = json.loads(output_of(capfd, "status", run.directory, "--json"))
    assert (status["state"], status["status"], status["total"], status["complete"]) == ("gone", None, 4, False)
    ended = {"succeeded": 1, "failed": 1, "lost": 0, "stopped": 0, "pruned": 0, "paused": 0}
    assert status["counts"] == {"queued": 1, "running": 1, **ended}
    assert status["best"]["id"] == 0
    assert (status["driver"]["host"], status["driver"]["answers"]) == ("host-1", False)
    trial = status["trials"][2]
    assert (trial["report"]["step"], trial["checkpoint"]["step"], trial["generations"]) == (150, 100, 2)
    assert Path(trial["checkpoint"]["path"]).is_file()


def test_status_of_several_runs(run: ScriptedRun, tmp_path: Path, capfd: Capture) -> None:
    ended(typical(tmp_path / "runs", "over"))
    typical(tmp_path / "runs", "spoilt")
    spoil(tmp_path / "runs" / "spoilt" / "journal" / "batch-0001-00000003")
    lines = output_of(capfd, "status", str(tmp_path / "runs")).splitlines()
    assert [line.split()[0] for line in lines] == ["run", "mnist", "over", "spoilt:"]
    assert "driver gone     2/4       1  accuracy 0.9000" in lines[1]
    assert "succeeded       4/4       2  accuracy 0.9500" in lines[2]
    assert "journal of " in lines[3]
    runs = json.loads(output_of(capfd, "status", str(tmp_path / "runs"), "--json"))
    assert [each["name"] for each in runs["runs"]] == ["mnist", "over"]
    assert [each["name"] for each in runs["problems"]] == ["spoilt"]


@pytest.fixture
def later(run: ScriptedRun, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """A run with a driver that answers; it advances by one step at each pause of the watching command."""
    steps: list[Callable[[], None]] = []
    for module in (watch, logs):
        monkeypatch.setattr(module, "pause", lambda seconds: steps.pop(0)())
    monkeypatch.setattr(watcher, "answers", lambda who: True)
    return steps


def test_a_watched_run_is_a_line_for_each_change(
    run: ScriptedRun, later: list[Callable[[], None]], capfd: Capture
) -> None:
    later += [lambda: run.report(2, 160, accuracy=0.6), lambda: None, lambda: ended(run)]
    lines = output_of(capfd, "status", run.directory, "--watch").splitlines()
    begins = "mnist: running; 2 of 4 trials done, 1 running, 1 queued, 1 failed; best accuracy 0.9000 in trial 0"
    assert lines[0] == f"{begins}; trial 2: report 150, checkpoint after 100 steps, generation 2"
    assert lines[1] == f"{begins}; trial 2: report 160, checkpoint after 100 steps, generation 2"
    assert lines[2] == "mnist: succeeded; 4 of 4 trials done, 2 failed; best accuracy 0.9500 in trial 2"
    assert lines[3].startswith("mnist: succeeded. 4 trials, 2 failed")


def test_a_watched_run_as_json_is_an_object_on_a_line_for_each_change(
    run: ScriptedRun, later: list[Callable[[], None]], capfd: Capture
) -> None:
    later += [lambda: None, lambda: run.report(2, 160, accuracy=0.6), lambda: ended(run)]
    lines = output_of(capfd, "status", run.directory, "--watch", "--json").splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["running", "running", "ended"]


def test_ctrl_c_ends_watching(run: ScriptedRun, later: list[Callable[[], None]], capfd: Capture) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    later.append(interrupt)
    assert cli.main(["status", run.directory, "--watch"]) == 130
    assert capfd.readouterr().err == "error: interrupted\n"


def test_logs(run: ScriptedRun, capfd: Capture) -> None:
    assert output_of(capfd, "logs", run.directory, "2") == "second\n"
    assert output_of(capfd, "logs", run.directory, "2", "--generation", "1") == "first\n"
    assert output_of(capfd, "logs", run.directory, "0", "--tail", "1") == "epoch 2\n"
    everything = output_of(capfd, "logs", run.directory, "2", "--all")
    assert everything == (
        "==> trial 2 (generation 1, rank 0) <==\nfirst\n\n==> trial 2 (generation 2, rank 0) <==\nsecond\n"
    )
    table = output_of(capfd, "logs", run.directory).splitlines()
    assert [line.split()[:4] for line in table[1:5]] == [
        ["0", "succeeded", "1", "1"],
        ["1", "failed", "1", "0"],
        ["2", "running", "2", "2"],
        ["3", "queued", "0", "0"],
    ]
    files = json.loads(output_of(capfd, "logs", run.directory, "2", "--json"))["logs"]
    assert [(each["generation"], each["rank"], each["size"]) for each in files] == [(1, 0, 6), (2, 0, 7)]
    assert Path(files[0]["path"]).read_text() == "first\n"


def test_a_log_is_followed(run: ScriptedRun, later: list[Callable[[], None]], capfd: Capture) -> None:
    later += [
        lambda: run.lose(2),
        lambda: run.form(2, 3),
        lambda: run.log(2, "third\n", 3),
        lambda: run.fail(2),
    ]
    later += [lambda: None] * logs.SETTLED_POLLS
    assert cli.main(["logs", run.directory, "2", "--follow"]) == 0
    out, err = capfd.readouterr()
    assert (out, err) == ("second\nthird\n", "trial 2 restarts: generation 3\n")


def test_the_only_trial_need_not_be_named(tmp_path: Path, capfd: Capture) -> None:
    run = ScriptedRun(tmp_path / "runs", total=1).begin()
    run.add({})
    run.form(0)
    run.log(0, "hello\n")
    assert output_of(capfd, "logs", run.directory) == "hello\n"


def test_best(run: ScriptedRun, capfd: Capture) -> None:
    run.store.put_if_absent("mnist/trials/0000/generation-1/rank-0/model.keras", b"")
    lines = output_of(capfd, "best", run.directory).splitlines()
    assert lines[0] == "trial 0: accuracy 0.9000, loss 0.3000"
    assert [line.split()[0] for line in lines[1:]] == ["parameters", "checkpoint", "log", "model", "so"]
    assert lines[-1] == "so far: 2 trials without a result"
    run.succeed(2, accuracy=0.7, loss=0.1)
    best = json.loads(output_of(capfd, "best", run.directory, "--metric", "loss", "--top", "5", "--json"))
    assert [(trial["id"], trial["checkpoint"]["step"]) for trial in best["best"]] == [(2, 100), (0, 200)]
    assert Path(best["best"][1]["model"]).is_file()


def test_best_of_a_run_without_a_success_has_a_code_of_its_own(tmp_path: Path, capfd: Capture) -> None:
    run = ScriptedRun(tmp_path / "runs").begin()
    assert cli.main(["best", run.directory]) == 3
    assert capfd.readouterr().out == "mnist: no trial has succeeded yet; 4 trials without a result\n"
    assert cli.main(["best", run.directory, "--json"]) == 3
    assert json.loads(capfd.readouterr().out)["best"] == []


def test_fsck_has_codes_of_its_own(run: ScriptedRun, capfd: Capture) -> None:
    assert output_of(capfd, "fsck", run.directory).startswith(
        "mnist: clean. 13 records, 3 checkpoints (8.8 KiB, every byte"
    )
    manifest = next((run.store.root / "mnist").glob("trials/0000/checkpoints/*/manifest-00000200"))
    spoil(manifest)
    assert cli.main(["fsck", run.directory, "--json"]) == 7
    assert json.loads(capfd.readouterr().out)["code"] == 7
    spoil(run.store.root / "mnist" / "journal" / "batch-0001-00000003")
    assert cli.main(["fsck", run.directory, "--fast"]) == 8
    assert capfd.readouterr().out.startswith("mnist: corrupt, cannot be resumed as it is.")
    assert cli.main(["fsck", run.directory, "--repair", "--json"]) == 0
    assert len(json.loads(capfd.readouterr().out)["repaired"]) == 2
    assert output_of(capfd, "fsck", run.directory).startswith("mnist: clean. ")


def test_gc(run: ScriptedRun, capfd: Capture) -> None:
    ended(run)
    would = output_of(capfd, "gc", run.directory, "--dry-run", "--checkpoints", "best")
    assert would.startswith("mnist: would delete 2 checkpoints: 5.9 KiB; ")
    did = json.loads(output_of(capfd, "gc", run.directory, "--json"))
    assert [(each["trial"], each["step"], each["size"]) for each in did["checkpoints"]] == [(0, 100, 3002)]
    assert output_of(capfd, "gc", run.directory).startswith("mnist: there is nothing to delete")
    assert cli.main(["fsck", run.directory, "--repair"]) == 0
    assert "checkpoint:" not in capfd.readouterr().out


def test_a_trial_that_printed_nothing_has_an_empty_log(run: ScriptedRun, capfd: Capture) -> None:
    ended(run)
    assert cli.main(["logs", run.directory, "3"]) == 0
    assert capfd.readouterr() == ("", "trial 3 has ended, and printed nothing\n")


WRONG = [
    (["status", "{run}", "--watch", "--every", "often"], "every"),
    (["status", "{runs}", "--watch"], "--watch shows one run"),
    (["status", "{runs}/none"], "there is no such directory, or it is empty"),
    (["status", "foo://a/b"], "foo store"),
    (["logs", "{run}", "9"], "trial 9 is none of run mnist: there are 0, 1, 2, 3"),
    (["logs", "{run}", "3"], "there is no log of trial 3 yet"),
    (["logs", "{run}", "2", "--rank", "4"], "by generation/rank there are 1/0, 2/0"),
    (["logs", "{run}", "--rank", "1"], "has 4 trials: name the trial of the log"),
    (["logs", "{run}", "2", "--all", "--follow"], "--follow follows one log, and --all prints several"),
    (["logs", "{run}", "2", "--json", "--follow"], "--follow follows one log, and --json lists several"),
    (["logs", "{run}", "2", "--tail", "0"], "--tail (0) must be at least 1"),
    (["best", "{run}", "--metric", "acuracy"], "did you mean 'accuracy'?"),
    (["best", "{run}", "--mode", "best"], "--mode ('best') must be 'max' or 'min'"),
    (["best", "{run}", "--top", "0"], "--top (0) must be at least 1"),
    (["fsck", "{runs}/none"], "is no run directory"),
    (["gc", "{run}", "--checkpoints", "all"], "--checkpoints (all) must be one of each, best, none"),
    (["gc", "{run}", "--older-than", "-1h"], "--older-than"),
    (["gc", "{run}", "--older-tan", "1h"], "No such option"),
]


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> ScriptedRun:
    """A run beside another one, for tests that change neither."""
    run = typical(tmp_path_factory.mktemp("unchanged") / "runs")
    typical(run.store.root, "second")
    return run


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_a_wrong_call(unchanged: ScriptedRun, capfd: Capture, words: list[str], message: str) -> None:
    run, before = unchanged, unchanged.store.list()
    assert cli.main([word.format(run=run.directory, runs=run.store.root) for word in words]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert run.store.list() == before


COMMANDS = ("status", "logs", "best", "fsck", "gc")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("columns", ["80", "120"])
def test_help_has_examples_and_exit_codes(
    columns: str, name: str, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = output_of(capfd, name, "--help")
    assert max(map(len, shown.splitlines())) <= int(columns)
    assert "--json" in shown
    assert f"  sparktrain {name} " in shown
    for code in (0, 2, 5, 130, *((7, 8) if name == "fsck" else (3,) if name == "best" else ())):
        assert f"\n  {code:>3}  " in shown


def test_examples_of_the_help_parse(capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "look", lambda work, **options: 0)
    pages = (
        inspect_commands.STATUS_EXAMPLES,
        inspect_commands.LOGS_EXAMPLES,
        inspect_commands.BEST_EXAMPLES,
        upkeep_commands.FSCK_EXAMPLES,
    )
    lines = [
        line for page in (*pages, upkeep_commands.GC_EXAMPLES) for line in page.splitlines() if line.startswith("  ")
    ]
    assert len(lines) == 11
    for line in lines:
        assert cli.main(line.split()[1:]) == 0, capfd.readouterr().err


def test_status_on_80_columns_shows_the_parameter_that_differs(run: ScriptedRun, tmp_path: Path) -> None:
    page = tmp_path / "status.txt"
    with page.open("wb") as file:
        assert inspect_commands.show_status(Output(file.fileno(), False, pipe_width=80), run.directory, None) == 0
    lines = page.read_text("utf-8").splitlines()
    [heading] = [line for line in lines if line.startswith("trial  report")]
    [row] = [line for line in lines if line.startswith("    2  ")]
    assert heading.endswith("parameters")
    assert "lr=0.01" in row
    assert len(row) <= 80
