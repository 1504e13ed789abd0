"""The command line, with a narrow fake in place of Spark and the sweep."""

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from sparktrain import __version__, cli
from sparktrain.base.boundary import DriverTerminated
from sparktrain.base.ids import TrialId
from sparktrain.cli import common, train_commands
from sparktrain.cli.command_table import COMMANDS, application
from sparktrain.config.panels import PANELS
from sparktrain.display.progress import NullDisplay
from sparktrain.driver.options import RunOptions, SweepOptions
from sparktrain.errors import AgentsLostError, IllegalMoveError, ResourceError
from sparktrain.results.sweep_result import SweepResult
from sparktrain.runs.results_json import to_json
from sparktrain.runs.sweep_outcome import SweepStatus
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.outcome import Failure, FailureKind
from sparktrain.state.trial import TrialStatus
from tests.unit.cli.edge import RESULT, Edge

Capture = pytest.CaptureFixture[str]


def test_a_grid(edge: Edge, target: str, capfd: Capture) -> None:
    assert (
        cli.main(["sweep", target, "--grid", "lr=0.1,0.01", "--grid", "dropout=0.4,0.7", "--metric", "accuracy"]) == 0
    )
    assert len(edge.calls[0]["space"]) == 4
    assert edge.calls[0]["target"].function(lr=3) == 3
    assert edge.options.keywords == SweepOptions(metric="accuracy").keywords
    assert edge.sessions == [(None, {}, "sparktrain")]


def test_values_position_by_position(edge: Edge, target: str) -> None:
    assert cli.main(["sweep", target, "--zip", "lr=0.1,0.01", "--zip", "dropout=0.4,0.7"]) == 0
    assert edge.calls[0]["space"] == [{"lr": 0.1, "dropout": 0.4}, {"lr": 0.01, "dropout": 0.7}]


def test_a_sampled_space_with_lists_beside_it(edge: Edge, target: str) -> None:
    words = ["--space", "lr=loguniform(1e-4,1e-1)", "--space", "momentum=0.9", "--grid", "dropout=0.4,0.7"]
    assert cli.main(["sweep", target, *words, "--sampler", "random", "--trials", "4", "--metric", "loss"]) == 0
    assert str(edge.calls[0]["space"]) == (
        "lr ~ loguniform(0.0001, 0.1), momentum = 0.9, dropout in a grid of [0.4, 0.7]"
    )
    assert edge.options.keywords == SweepOptions(metric="loss", sampler="random", trials=4).keywords


def test_a_file_with_a_sampled_space(edge: Edge, target: str) -> None:
    Path("sweep.yaml").write_text("space:\n  lr: uniform(0, 1)\nsampler: tpe\ntrials: 5\nmetric: loss\n")
    assert cli.main(["sweep", target, "--params", "sweep.yaml"]) == 0
    assert str(edge.calls[0]["space"]) == "lr ~ uniform(0, 1)"
    assert edge.options.keywords == SweepOptions(metric="loss", sampler="tpe", trials=5).keywords


def test_a_file_sets_what_the_command_line_does_not(edge: Edge, target: str) -> None:
    Path("sweep.yaml").write_text("zip:\n  lr: [1, 2]\nmetric: loss\nmode: min\nmax_concurrent_trials: 3\nseed: 4\n")
    assert cli.main(["sweep", target, "--params", "sweep.yaml", "--seed", "5"]) == 0
    assert edge.options.keywords == SweepOptions(metric="loss", mode="min", seed=5, max_concurrent_trials=3).keywords


def test_every_option_arrives(edge: Edge, target: str) -> None:
    Path("more.py").write_text("")
    options = {
        "metric": "loss", "mode": "min", "trials": 3, "dir": "/shared/runs", "name": "mnist", "seed": 7,
        "trial_timeout": "90s", "hang_timeout": "5m", "timeout": "2h", "max_retries": 1, "gpus": 2,
        "max_failures": "5", "start_timeout": "10m", "log_limit": 4096, "code_limit": 100,
        "preload": ("keras", "numpy"),
        "workers_per_trial": 2, "backend": "tensorflow", "data_version": "2026-01", "allow_changed": ("code", "space"),
        "healing": "off",
    }  # fmt: skip
    words = [
        word
        for name, value in options.items()
        for word in (f"--{name.replace('_', '-')}", ",".join(value) if isinstance(value, tuple) else str(value))
    ]
    words += [
        "--max-concurrent-trials",
        "2",
        "--master",
        "local[2]",
        "--conf",
        "a=b=c",
        "--conf",
        "d=1",
        "--py-files",
        "more.py",
        "-q",
        "--retry-failed",
        "--env",
        "A=b=c",
        "--env",
        "TOKEN",
    ]
    assert cli.main(["sweep", target, "--grid", "lr=1", *words]) == 0
    given = {"retry_failed": True, "env": {"A": "b=c"}, "forward_env": ("TOKEN",), "max_concurrent_trials": 2}
    assert edge.options.keywords == SweepOptions(**options, **given).keywords
    assert isinstance(edge.calls[0]["display"], NullDisplay)
    assert edge.sessions == [("local[2]", {"a": "b=c", "d": "1"}, "mnist")]
    assert edge.session is not None
    assert edge.session.sparkContext.py_files == ["more.py"]


def test_a_run_has_its_parameters_and_its_gang(edge: Edge, target: str, capfd: Capture) -> None:
    words = ["--workers", "4", "--param", "lr=0.01", "--param", "layers=[64, 32]", "--name", "big"]
    assert cli.main(["run", target, *words]) == 0
    assert edge.calls[0]["space"] == [{"lr": 0.01, "layers": [64, 32]}]
    assert edge.calls[0]["options"].keywords == RunOptions(workers=4, name="big").keywords
    assert edge.sessions == [(None, {}, "big")]
    out = capfd.readouterr().out
    assert out.startswith("a module that talks\nmnist: succeeded in 3.0 s on 0 members.\nmetrics: accuracy 0.9000\n")
    assert out.endswith("model: /runs/big/model.keras\n")


def test_every_option_of_a_run_arrives(edge: Edge, target: str) -> None:
    options: dict[str, Any] = {
        "workers": 2, "backend": "tensorflow", "ps": 1, "min_workers": 1, "max_retries": 0, "hang_timeout": "5m",
        "metric": "loss", "mode": "min", "dir": "/shared/runs", "name": "big", "seed": 7, "timeout": "2h", "gpus": 1,
        "preload": ("keras", "numpy"), "data_version": "2026-01", "allow_changed": ("gang",), "retry_failed": True,
        "healing": "off",
    }  # fmt: skip
    words = [
        word
        for name, value in options.items()
        for word in (f"--{name.replace('_', '-')}", ",".join(value) if isinstance(value, tuple) else str(value))
        if word != "True"
    ]
    assert cli.main(["run", target, *words, "--evaluator", "--agents", "5", "--master", "local[5]", "-q"]) == 0
    assert edge.calls[0]["options"].keywords == RunOptions(**options, evaluator=True, agents=5).keywords
    assert isinstance(edge.calls[0]["display"], NullDisplay)
    assert edge.sessions == [("local[5]", {}, "big")]


def test_a_run_has_the_rest_from_its_file(edge: Edge, target: str, tmp_path: Path) -> None:
    file = tmp_path / "gang.yaml"
    file.write_text("params: {lr: 0.1, units: [8, 8]}\nworkers: 2\nevaluator: true\nagents: 3\nname: file\n")
    assert cli.main(["run", target, "--params", str(file), "--param", "lr=0.2", "--name", "given"]) == 0
    assert edge.calls[0]["space"] == [{"lr": 0.2, "units": [8, 8]}]
    assert edge.calls[0]["options"].keywords == RunOptions(workers=2, evaluator=True, name="given", agents=3).keywords


def test_a_run_that_fails_is_shown_and_is_no_error_of_the_call(edge: Edge, target: str, capfd: Capture) -> None:
    failure = Failure(FailureKind.EXCEPTION, "ValueError: units", "Traceback:\n  \x1b[2J", rank=1, host="gpu-2")
    trial = TrialResult(id=TrialId(0), params={}, status=TrialStatus.FAILED, error=failure)
    edge.ends = lambda: SweepResult(name="big", status=SweepStatus.FAILED, directory="/runs/big", trials=(trial,))
    assert cli.main(["run", target, "--workers", "2", "--backend", "none"]) == 3
    out, err = capfd.readouterr()
    assert "run big failed: rank 1 on gpu-2: ValueError: units\nTraceback:\n  \\x1b[2J\nrun directory: /runs/big" in out
    assert "error:" not in err


def test_the_result_of_a_run_as_json_is_that_of_a_sweep_of_one_trial(edge: Edge, target: str, capfd: Capture) -> None:
    assert cli.main(["run", target, "--workers", "1", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == to_json(RESULT)


def test_a_run_is_resumed_with_the_named_session(edge: Edge, capfd: Capture) -> None:
    words = ["--max-concurrent-trials", "3", "--master", "local[2]", "--conf", "a=b", "--retry-failed", "--quiet"]
    words += ["--env", "A=b", "--env", "HOME"]
    assert cli.main(["resume", "hdfs:///runs/mnist", *words]) == 0
    [call] = edge.calls
    keywords = call["keywords"]
    assert (call["directory"], keywords.max_concurrent_trials, keywords.agents) == ("hdfs:///runs/mnist", 3, None)
    assert keywords.retry_failed is True
    assert (keywords.env, keywords.forward_env) == ({"A": "b"}, ("HOME",))
    assert isinstance(call["display"], NullDisplay)
    assert edge.sessions == [("local[2]", {"a": "b"}, "sparktrain resume")]
    assert "mnist: succeeded. 1 trial" in capfd.readouterr().out


def test_a_run_of_one_gang_that_is_resumed_ends_as_it_would_have(edge: Edge, capfd: Capture) -> None:
    failure = Failure(FailureKind.EXCEPTION, "ValueError: units")
    trial = TrialResult(id=TrialId(0), params={}, status=TrialStatus.FAILED, error=failure)
    edge.ends = lambda: SweepResult(name="big", status=SweepStatus.FAILED, trials=(trial,))
    assert cli.main(["resume", "/runs/big"]) == 3
    assert "run big failed: ValueError: units" in capfd.readouterr().out
    edge.session = None
    assert cli.main(["resume", "/runs/big", "--json"]) == 3
    assert json.loads(capfd.readouterr().out)["status"] == "failed"


def test_py_files_can_be_imported_by_the_target(edge: Edge, tmp_path: Path, target: str) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a_library_of_ours.py").write_text("UNITS = 64\n")
    name = target.partition(".")[0]
    Path(f"{name}.py").write_text("from a_library_of_ours import UNITS\ndef train(lr):\n    return UNITS\n")
    assert cli.main(["sweep", target, "--grid", "lr=1", "--py-files", "lib/a_library_of_ours.py"]) == 0


def test_the_table_goes_to_stdout(edge: Edge, target: str, capfd: Capture) -> None:
    assert cli.main(["sweep", target, "--grid", "lr=1"]) == 0
    out = capfd.readouterr().out
    assert "mnist: succeeded. 1 trial, in 3.0 s. Best accuracy 0.9000: trial 0." in out
    assert "\x1b" not in out


def test_json_is_all_of_stdout(edge: Edge, target: str, capfd: Capture) -> None:
    def end() -> SweepResult:
        print("what a library prints")
        os.write(1, b"what the JVM prints\n")
        return RESULT

    edge.ends = end
    assert cli.main(["sweep", target, "--grid", "lr=1", "--json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out) == to_json(RESULT)
    for noise in ("a module that talks", "what a library prints", "what the JVM prints"):
        assert noise in err
    print("later prints go to stdout again", flush=True)
    assert "later prints" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("status", "code"),
    [(SweepStatus.SUCCEEDED, 0), (SweepStatus.FAILED, 3), (SweepStatus.LOST, 4), (SweepStatus.STOPPED, 6)],
)
def test_exit_code_of_a_result(edge: Edge, target: str, status: SweepStatus, code: int) -> None:
    edge.ends = lambda: SweepResult(name="mnist", status=status)
    assert cli.main(["sweep", target, "--grid", "lr=1"]) == code


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ResourceError("gpus (2) exceed the session's 1"), 2, "error: gpus (2) exceed the session's 1\n"),
        (AgentsLostError("all executors are gone"), 5, "error: all executors are gone\n"),
        (IllegalMoveError("trial 1 cannot go"), 1, "error: trial 1 cannot go\n"),
        (ZeroDivisionError("ouch"), 1, "error: unexpected ZeroDivisionError: ouch; --debug shows where\n"),
        (KeyboardInterrupt("run mnist was interrupted"), 130, "error: run mnist was interrupted\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (DriverTerminated("run mnist was interrupted"), 143, "error: run mnist was interrupted\n"),
        (DriverTerminated(), 143, "error: ended by SIGTERM\n"),
    ],
)
def test_exit_code_of_an_error(
    edge: Edge, target: str, capfd: Capture, error: BaseException, code: int, message: str
) -> None:
    def end() -> SweepResult:
        raise error

    edge.ends = end
    assert cli.main(["sweep", target, "--grid", "lr=1", "--json"]) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err.endswith(message)
    assert "Traceback" not in err


def test_debug_shows_the_traceback(edge: Edge, target: str, capfd: Capture) -> None:
    edge.ends = lambda: [][0]
    assert cli.main(["sweep", target, "--grid", "lr=1", "--debug"]) == 1
    err = capfd.readouterr().err
    assert "Traceback" in err
    assert err.endswith("error: unexpected IndexError: list index out of range\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["swep"], "No such command 'swep'"),
        (["sweep"], "Missing argument 'TARGET'"),
        (["sweep", "TARGET", "--gird", "lr=1"], "No such option: --gird"),
        (["sweep", "train.py", "--steps", "3"], "Arguments of train.py come after --, at the end of the line."),
        (["sweep", "absent.py", "--grid", "lr=1", "--metric", "y"], "absent.py: no such file"),
        (["run", "absent.py", "--workers", "1", "--", "--steps", "3"], "absent.py: no such file"),
        (
            ["sweep", "TARGET", "--grid", "lr=1", "--trials", "many"],
            "--trials ('many') must be a whole number: write digits, such as 2 (trials: Most trials",
        ),
        (["sweep", "TARGET", "--agents", "2"], "Did you mean --max-concurrent-trials?"),
        (["sweep", "TARGET", "--retries", "2"], "--max-retries"),
        (["run", "TARGET", "--max-restarts", "2"], "--max-retries"),
        (["run", "TARGET"], "--workers N, or workers in the file of --params"),
        (["run", "TARGET", "--params", "none.yaml"], "none.yaml: no such file"),
        (["run", "TARGET", "--workers", "two"], "--workers ('two') must be a whole number"),
        (["run", "TARGET", "--workers", "2", "--grid", "lr=1"], "No such option: --grid"),
        (["run", "TARGET", "--workers", "2", "--param", "lr"], "--param 'lr': no '='"),
        (["run", "TARGET", "--workers", "2", "--param", "lr=1,2"], "'lr' has 2 values, a run takes one"),
        (["run", "none.py:train", "--workers", "2"], "none.py: no such file"),
        (["sweep", "TARGET"], "the call has none of them"),
        (["sweep", "TARGET", "--grid", "lr=1", "--zip", "lr=1"], "the call has --grid and --zip"),
        (["sweep", "TARGET", "--grid", "lr"], "--grid 'lr'"),
        (["sweep", "TARGET", "--space", "lr=uniform(1, 0)"], "the range is inverted"),
        (["sweep", "TARGET", "--space", "lr=unifrom(0, 1)"], "did you mean 'uniform'"),
        (["sweep", "TARGET", "--space", "lr=uniform(0, 1)", "--zip", "lr=1"], "the call has --space and --zip"),
        (
            ["sweep", "TARGET", "--space", "lr=uniform(0, 1)", "--grid", "lr=1"],
            "'lr' is given by --space and by --grid",
        ),
        (["sweep", "TARGET", "--space", "a=uniform(0, 1)", "--space", "a=1"], "'a' is given twice"),
        (["sweep", "TARGET", "--grid", "lr=1", "--sampler", "tpes"], "did you mean 'tpe'"),
        (["sweep", "TARGET", "--params", "none.yaml"], "none.yaml: no such file"),
        (["sweep", "none.py:train", "--grid", "lr=1"], "none.py: no such file"),
        (["sweep", "TARGET", "--grid", "lr=1", "--conf", "spark.x"], "--conf 'spark.x' must be KEY=VALUE"),
        (["sweep", "TARGET", "--grid", "lr=1", "--py-files", "none.zip"], "--py-files 'none.zip' does not exist"),
        (["sweep", "TARGET", "--grid", "lr=1", "--py-files", "lib"], "--py-files 'lib' must be one of .py, .zip"),
    ],
)
def test_a_wrong_call_ends_before_spark(
    edge: Edge, target: str, capfd: Capture, words: list[str], message: str
) -> None:
    assert cli.main([target if word == "TARGET" else word for word in words]) == 2
    out, err = capfd.readouterr()
    assert message in err
    assert err.startswith("error: ")
    assert "╭" not in err
    assert out == ""
    assert not edge.calls


def test_version(capfd: Capture) -> None:
    assert cli.main(["--version"]) == 0
    assert capfd.readouterr().out == f"sparktrain {__version__}\n"


@pytest.mark.parametrize(
    ("word", "page"),
    [("run", "sparktrain run --help"), ("sweep", "sparktrain sweep --help"), ("rum", "sparktrain --help")],
)
def test_a_wrong_call_names_the_help_of_its_command(word: str, page: str, capfd: Capture) -> None:
    assert cli.main([word]) == 2
    assert capfd.readouterr().err.rstrip().endswith(f"see: {page}")


def test_without_words_it_shows_its_help(capfd: Capture) -> None:
    assert cli.main([]) == 0
    assert "sweep" in capfd.readouterr().out


OPTIONS = {
    "sweep": (
        "--grid",
        "--zip",
        "--space",
        "--sampler",
        "--warm-start",
        "--dry-run",
        "--params",
        "--trial-timeout",
        "--workers-per-trial",
        "--backend",
        "--py-files",
    ),
    "resume": ("--retry-failed", "--master", "--max-concurrent-trials", "--agents", "--py-files", "--conf"),
    "refit": ("--workers", "--param", "--trial", "--from-checkpoint"),
    "extend": ("--trials", "--space", "--grid", "--master"),
    "run": ("--workers", "--backend", "--ps", "--evaluator", "--param", "--max-retries", "--min-workers", "--metric"),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("columns", ["80", "120"])
def test_help_has_every_option_example_and_exit_code(
    columns: str, name: str, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert cli.main([name, "--help"]) == 0
    shown = capfd.readouterr().out
    assert max(map(len, shown.splitlines())) <= int(columns)
    for option in (*OPTIONS[name], "--local", "--slots", "--json", "--quiet", "--retry-failed"):
        assert option in shown
    for code, meaning in common.TRAINING_CODES.items():
        assert f"{code:>3}  {meaning}" in shown


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_has_panels_in_order_and_shows_what_a_value_is_and_nothing_for_a_flag(
    name: str, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert cli.main([*filter(None, [name]), "--help"]) == 0
    shown = capfd.readouterr().out
    panels = re.findall(r"^╭─ (.+?) ─+╮$", shown, re.MULTILINE)
    assert panels == [panel for panel in ("Arguments", *PANELS) if panel in panels] or not name
    assert not re.findall(r"<\w+>|[{}]|\b(?:bool|str|int|float)\b", shown)
    command = typer.main.get_command(application())
    for each in (command.commands[name] if name else command).params:  # type: ignore[attr-defined]  # it is a group
        if each.param_type_name == "argument":
            assert re.search(rf"Usage: .*{each.metavar}", shown)
        elif not each.is_flag:
            assert re.fullmatch(r"[A-Z0-9=,\[\]]+|[a-z]+(\|\w+)+", each.metavar), each.name
            assert re.search(rf"{each.opts[0]} .*{re.escape(each.metavar)}  ", shown)


def test_the_documented_exit_codes_are_the_real_ones() -> None:
    page = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text("utf-8")
    for code, meaning in common.EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in page


def test_examples_of_the_help_parse(edge: Edge, target: str, capfd: Capture) -> None:
    Path("sweep.yaml").write_text("zip:\n  lr: [1, 2]\n")
    Path("train.py").write_text("print('accuracy: 0.5, and no lr')")
    joined = "".join(
        [
            train_commands.SWEEP_EXAMPLES,
            train_commands.RUN_EXAMPLES,
            train_commands.RESUME_EXAMPLES,
            train_commands.EXTEND_EXAMPLES,
        ]
    ).replace("\\\n", "")
    joined = joined.replace("train.py:train", target).replace("> result.json", "")
    commands = [shlex.split(line)[1:] for line in joined.splitlines() if line.startswith("  sparktrain")]
    assert len(commands) == 14
    for words in commands:
        edge.session = None
        edge.sessions.clear()
        assert cli.main(words) == 0, capfd.readouterr().err
