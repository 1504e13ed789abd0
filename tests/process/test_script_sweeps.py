"""Scripts with arguments of their own are trials, unchanged."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain import cli
from sparktrain.errors import FunctionError, ResumeError, SpecError

ARGPARSE = """
import argparse
import sparktrain
import helper

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--batch-size", type=int, default=1)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--flag", action="store_true")
if __name__ == "__main__":
    args = parser.parse_args()
    for epoch in range(args.epochs):
        sparktrain.report(loss=helper.loss(args.lr, args.batch_size, epoch) + args.flag)
"""
HELPER = "def loss(lr, batch_size, epoch):\n    return lr * batch_size - epoch"
TYPER = """
import json, typer

def main(lr: float = 1, hidden_size: int = 1, amp: bool = True) -> None:
    json.dump({"loss": lr * hidden_size, "amp": int(amp)}, open("metrics.json", "w"))

typer.run(main)
"""
CLICK = """
import click, json

@click.command()
@click.option("--lr", type=float, default=1)
@click.option("--hidden-size", type=int, default=1)
@click.option("--amp", is_flag=True)
def main(lr, hidden_size, amp):
    json.dump({"loss": lr * hidden_size, "amp": int(amp)}, open("metrics.json", "w"))

main()
"""
ABSL = """
import json
from absl import app, flags

flags.DEFINE_float("lr", 1, "rate")
flags.DEFINE_integer("hidden_size", 1, "size")
flags.DEFINE_bool("amp", True, "mixed precision")

def main(arguments):
    lr, hidden_size, amp = flags.FLAGS.lr, flags.FLAGS.hidden_size, flags.FLAGS.amp
    json.dump({"loss": lr * hidden_size, "amp": int(amp)}, open("metrics.json", "w"))

if __name__ == "__main__":
    app.run(main)
"""
PACKAGED = """
import argparse
import multiprocessing
import sparktrain
{imports}

def squared(value):
    return value * value

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    args = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        sparktrain.report(loss=args.lr * FACTOR, squared=pool.map(squared, [3])[0])
"""
ORDINARY = """
import argparse, json, logging, multiprocessing, os, signal
from tqdm import tqdm

def squared(value):
    return value * value

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    args = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    logging.info("starts with lr %s", args.lr)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        squares = list(tqdm(pool.imap(squared, range(4))))
    json.dump({"loss": args.lr, "squares": sum(squares)}, open("metrics.json", "w"))
    os.mkdir("beside")
    os.chdir("beside")
"""
TYRO = """
import json, sys  # instead of tyro
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if unknown := sorted(words.keys() - {"--lr", "--hidden-size"}):
    print("╭─ Unrecognized options ────────╮", f"│ Unrecognized options: {unknown[0]} │", sep=chr(10), file=sys.stderr)
    print("│ ───────────────────────────── │", "│ For full helptext, run s.py --help │", sep=chr(10), file=sys.stderr)
    print("╰───────────────────────────────╯", file=sys.stderr)
    sys.exit(2)
"""
FLAGS = ABSL.replace("app.run(main)", "main(flags.FLAGS(__import__('sys').argv))")
BESIDE = """
import json
from options.of_training import parse

args = parse()
json.dump({"loss": args.lr * args.hidden_size, "amp": int(args.amp)}, open("metrics.json", "w"))
"""
OPTIONS = """
import argparse

def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1)
    parser.add_argument("--hidden-size", type=int, default=1)
    parser.add_argument("--amp", action="store_true")
    return parser.parse_args()
"""
PARSERS = {"typer": TYPER, "click": CLICK, "absl": ABSL, "flags": FLAGS, "beside": BESIDE}
PRINTS = """
import sys, time
sys.argv[1].startswith("lr=") or sys.exit(3)
lr = float(sys.argv[1].partition("=")[2])
for epoch in range(3):
    print(f"epoch {epoch} loss: {lr / (epoch + 1)} accuracy={epoch / 10}")
print("loss: 100", end="")  # without an end of line
"""
HYDRA = """
import sys  # instead of hydra
words = dict(word.split("=") for word in sys.argv[1:])
if unknown := sorted(words.keys() - {"lr", "model.size"}):
    print(f"Could not override '{unknown[0]}'.", "Key is not in struct", "Set HYDRA_FULL_ERROR=1", sep=chr(10))
    sys.exit(1)
print("loss:", float(words["lr"]) * float(words["model.size"]))
def train(): ...
print("beside:", train.__code__.co_filename == __file__)
"""
BESIDE_OTHERS = """
import argparse, pathlib, time
import sparktrain

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--together", type=pathlib.Path)
args = parser.parse_args()
pathlib.Path("state.txt").write_text(str(args.lr))
(args.together / str(args.lr)).touch()
deadline = time.monotonic() + 60
while len(list(args.together.iterdir())) < 2 and time.monotonic() < deadline:
    time.sleep(0.01)
sparktrain.report(loss=float(pathlib.Path("state.txt").read_text()), both=len(list(args.together.iterdir())))
"""
RESUMES = """
import os, signal, sys
import sparktrain

ctx = sparktrain.context()
restored = ctx.checkpoint.restore()
first = 0 if restored is None else restored.step
for epoch in range(first, 4):
    ctx.checkpoint.save(epoch + 1, weight=epoch)
    sparktrain.report(epoch, loss=1 / (epoch + 1), first=first)
    if epoch == 2 and first == 0:
        os.kill(os.getpid(), signal.SIGKILL)
"""
DDP = """
import argparse

import sparktrain
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
args = parser.parse_args()
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
data = torch.utils.data.TensorDataset(torch.ones(8, 1))
rows = 0
for (x,) in torch.utils.data.DataLoader(data, 2, num_workers=2, sampler=torch.utils.data.DistributedSampler(data)):
    model(x).sum().backward()
    rows += len(x)
if dist.get_rank() == 0:
    sparktrain.report(loss=args.lr, size=dist.get_world_size(), rows=rows)
dist.destroy_process_group()
"""
ENDS = """
import sys
import sparktrain  # --lr
{body}
"""
Sweep = Callable[..., st.SweepResult]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture(scope="module")
def pool() -> Iterator[st.Pool]:
    """Two agents, which run the scripts of all tests."""
    with st.pool(st.local(slots=2), preload=[]) as opened:
        yield opened


@pytest.fixture(scope="module")
def one_agent() -> Iterator[st.Pool]:
    """One agent, which runs a trial after the other."""
    with st.pool(st.local(slots=1), preload=[]) as opened:
        yield opened


@pytest.fixture
def sweep(pool: st.Pool) -> Sweep:
    """Writes FILE.py with this source, and sweeps over it."""

    def result(
        file: str,
        source: str,
        /,
        *arguments: str,
        space: dict[str, list[object]],
        agents: st.Pool = pool,
        **options: Any,
    ) -> st.SweepResult:
        Path(f"{file}.py").write_text(source)
        fields = {
            key: options.pop(key) for key in ("form", "metric_from", "metric_file", "keep_files") if key in options
        }
        call = {"metric": "loss", "mode": "min", "dir": "runs", "name": "run", "progress": False} | options
        return agents.sweep(st.script(f"{file}.py", *arguments, **fields), space, **call)

    return result


def test_a_script_gets_its_parameters_as_arguments_and_reports(sweep: Sweep, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text(HELPER)
    result = sweep(
        "argparse_script", ARGPARSE, "--epochs", "3", space={"lr": [1.0, 2.0], "batch_size": [4], "flag": [False]}
    )
    assert [trial.metrics["loss"] for trial in result.trials] == [2.0, 6.0]
    assert result.best is not None
    history = result.best.history
    assert list(history["step"]) == [0, 1, 2]
    assert list(history["loss"]) == [4.0, 3.0, 2.0]
    again = sweep(
        "argparse_script", ARGPARSE, "--epochs", "3", space={"lr": [1.0, 2.0], "batch_size": [4], "flag": [False]}
    )
    assert [trial.metrics for trial in again.trials] == [trial.metrics for trial in result.trials]


@pytest.fixture
def parser(request: pytest.FixtureRequest) -> str:
    """The text of a script with that parser; beside it is one for it in a package."""
    Path("options").mkdir()
    Path("options", "of_training.py").write_text(OPTIONS)
    return (PARSERS | {"tyro": TYRO})[request.param]


@pytest.mark.parametrize("parser", PARSERS, indirect=True)
def test_a_script_gets_the_options_that_its_parser_takes(sweep: Sweep, parser: str) -> None:
    space = {"lr": [-1e-5], "hidden_size": [2, 3], "amp": [False, True]}
    result = sweep("parsing_script", parser, space=space, metric_file="metrics.json")
    cases = [(trial.params["hidden_size"] * -1e-5, float(trial.params["amp"])) for trial in result.trials]
    assert [(trial.metrics.get("loss"), trial.metrics.get("amp")) for trial in result.trials] == cases


@pytest.mark.parametrize("parser", [*PARSERS, "tyro"], indirect=True)
def test_a_parser_that_refuses_the_first_trial_ends_the_run_before_the_second(
    sweep: Sweep, one_agent: st.Pool, parser: str
) -> None:
    result = sweep(
        "refusing_script", parser + "# other", space={"lr": [1.0, 2.0, 3.0], "other": [7]},
        metric_file="metrics.json", agents=one_agent,
    )  # fmt: skip
    assert result.status == "failed"
    assert "other" in str(result.reason).partition("refuses its arguments")[2]
    assert [trial.status for trial in result.trials].count("failed") == 1
    assert not list(Path("runs/run/trials").glob("000[12]"))


def test_metrics_are_found_in_the_output_of_a_script_in_another_form(sweep: Sweep) -> None:
    result = sweep(
        "printing_script", PRINTS, space={"lr": [3.0]}, form="NAME=VALUE",
        metric_from=r"loss: (?P<loss>[0-9.]+)(?: accuracy=(?P<accuracy>\S+))?",
    )  # fmt: skip
    assert result.trials[0].metrics == {"loss": 100.0, "accuracy": 0.2}
    history = result.trials[0].history
    assert list(history["loss"]) == [3.0, 1.5, 1.0, 100.0]
    assert list(history["accuracy"])[:3] == [0.0, 0.1, 0.2]


@pytest.mark.parametrize(
    ("line", "pattern", "loss"),
    [
        ("loss: 1e-05", "loss: ([0-9.]+)", 1e-5),
        ("The loss: 0.25.", "loss: ([0-9.]+)", 0.25),
        ("loss: -2.5, next", r"loss: (\S+)", -2.5),
        ("loss: 123,456.70", r"loss: ([0-9.,]+)", 123456.7),
        ("loss 0.5\\nloss 0.25\\nmy loss 1", "^loss (.*)$", 0.25),
        ("\\r 50% loss 2\\r100% loss 1\\r", "^100% loss (.*)$", 1.0),
    ],
)
def test_a_number_is_read_as_a_whole(sweep: Sweep, line: str, pattern: str, loss: float) -> None:
    body = f"print('{line}')"
    result = sweep("numbering_script", ENDS.format(body=body), space={"lr": [1.0]}, metric_from=pattern)
    assert result.trials[0].metrics == {"loss": loss}


@pytest.mark.parametrize("change", ["sys.stdout = None", "sys.stdout.close()"])
def test_a_script_may_end_without_a_stream(sweep: Sweep, change: str) -> None:
    body = f"print('loss: 0.5', flush=True); import sys; {change}"
    result = sweep("streamless_script", ENDS.format(body=body), space={"lr": [1.0]}, metric_from="loss: (.*)")
    assert result.trials[0].metrics == {"loss": 0.5}


def test_keys_of_a_configuration_are_parameters_of_a_grid_and_of_a_sampled_space(sweep: Sweep) -> None:
    call: dict[str, Any] = {"form": "NAME=VALUE", "metric_from": "loss: (.*)"}
    listed = sweep("keyed_script", HYDRA, space={"lr": [2.0], "model.size": [4, 8]}, **call)
    assert [trial.metrics for trial in listed.trials] == [{"loss": 8.0}, {"loss": 16.0}]
    assert "beside: True" in Path("runs/run/trials/0000/generation-1/rank-0/log.txt").read_text()
    drawn = {"lr": st.uniform(1, 2), "model.size": st.choice([4, 8])}
    sampled = sweep("keyed_script", HYDRA, space=drawn, trials=4, sampler="tpe", name="sampled", **call)
    products = [trial.params["lr"] * trial.params["model.size"] for trial in sampled.trials]
    assert [trial.metrics["loss"] for trial in sampled.trials] == pytest.approx(products)
    assert len(sampled.to_study().trials[0].params) == 2


def test_a_key_that_a_configuration_lacks_ends_the_run(sweep: Sweep, one_agent: st.Pool) -> None:
    call: dict[str, Any] = {"form": "NAME=VALUE", "metric_from": "loss: (.*)", "agents": one_agent}
    result = sweep("unkeyed_script", HYDRA, space={"modl.size": [4, 8, 16]}, **call)
    assert "refuses its arguments" in str(result.reason)
    assert "Could not override 'modl.size'. Key is not in struct" in str(result.reason)
    assert not list(Path("runs/run/trials").glob("000[12]"))


@pytest.mark.parametrize("imports", ["from .constants import FACTOR", "from training_code.constants import FACTOR"])
def test_a_script_imports_from_its_package_and_starts_processes(sweep: Sweep, imports: str) -> None:
    Path("training_code").mkdir()
    Path("training_code", "__init__.py").touch()
    Path("training_code", "constants.py").write_text("FACTOR = 2")
    result = sweep("training_code/packaged", PACKAGED.format(imports=imports), space={"lr": [1.0]})
    assert result.trials[0].error is None
    assert result.trials[0].metrics == {"loss": 2.0, "squared": 9.0}


@pytest.mark.parametrize("name", ["ordinary_script", "2-ordinary-script"])
def test_a_script_logs_starts_processes_and_changes_its_directory(sweep: Sweep, name: str) -> None:
    result = sweep(name, ORDINARY, space={"lr": [1.0, 2.0]}, metric_file="metrics.json")
    assert [trial.metrics for trial in result.trials] == [{"loss": lr, "squares": 14.0} for lr in (1.0, 2.0)]
    log = Path("runs/run/trials/0000/generation-1/rank-0/log.txt").read_text()
    assert "INFO:root:starts with lr 1.0" in log
    with pytest.raises(ResumeError, match="other code"):
        sweep(name, f"{ORDINARY}print()", space={"lr": [1.0, 2.0]}, metric_file="metrics.json")


WRITES = """
import os, sys
os.makedirs("parts/empty")
for name in ("model.bin", "parts/first.bin", "notes.txt"):
    open(name, "w").write(name)
sparktrain.report(loss=1)
sys.exit(int(sys.argv[1]))
"""


def test_trials_side_by_side_write_files_of_one_name(sweep: Sweep, tmp_path: Path) -> None:
    (tmp_path / "together").mkdir()
    space = {"lr": [1.0, 2.0], "together": [str(tmp_path / "together")]}
    result = sweep("neighbouring_script", BESIDE_OTHERS, space=space, keep_files=["state.txt"])
    assert [trial.metrics for trial in result.trials] == [{"loss": 1.0, "both": 2.0}, {"loss": 2.0, "both": 2.0}]


def test_files_of_the_working_directory_are_stored_by_their_patterns_also_after_a_failure(sweep: Sweep) -> None:
    patterns = ["*.bin", "parts", "absent*"]
    result = sweep(
        "storing_script", ENDS.format(body=WRITES), space={"code": [0, 1]}, form="VALUE", keep_files=patterns
    )
    assert [trial.status for trial in result.trials] == ["succeeded", "failed"]
    for number in range(2):
        stored = Path(f"runs/run/trials/{number:04}/generation-1/rank-0/files")
        assert sorted(path.read_text() for path in stored.rglob("*.*")) == ["model.bin", "parts/first.bin"]
    [notice] = result.trials[0].notices
    assert notice.startswith("the script has written notes.txt in its working directory, which is deleted")


def test_files_that_are_deleted_are_named_but_for_that_of_the_metrics(sweep: Sweep) -> None:
    body = """
import os
for number in range(5):
    open(f"{number}.txt", "w")
os.mkdir("out")
open("out/m.json", "w").write('{"loss": 1}')
"""
    result = sweep("leaving_script", ENDS.format(body=body), space={"lr": [1.0]}, metric_file="out/m.json")
    [notice] = result.trials[0].notices
    assert "has written 0.txt, 1.txt, 2.txt and 2 more in its working directory" in notice


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "No such file"),
        ("open('metrics.json', 'w').write('{\"loss\": 1')", "metric_file (metrics.json) has no metrics"),
        ("open('metrics.json', 'w').write('[1]')", "has a list, an object of JSON is expected"),
        ("open('metrics.json', 'w').write('{\"other\": 1}')", "without the metric 'loss' in metrics.json"),
        ("open('metrics.json', 'w').write('{\"loss\": NaN}')", "no finite number"),
    ],
)
def test_a_file_without_the_metric_is_named(sweep: Sweep, body: str, words: str) -> None:
    result = sweep("writing_script", ENDS.format(body=body), space={"lr": [1.0]}, metric_file="metrics.json")
    error = result.trials[0].error
    assert error is not None
    assert words in error.summary


def test_a_script_resumes_from_its_checkpoint_after_a_kill(sweep: Sweep) -> None:
    result = sweep("resuming_script", RESUMES, space={"lr": [1.0]}, form="VALUE")
    metrics = result.trials[0].metrics
    assert metrics["loss"] == 0.25
    assert metrics["first"] in (1.0, 2.0, 3.0)  # the last save may not have been stored by the kill


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("sparktrain.report(other=1)", ["without the metric 'loss'", "sparktrain.report(loss=...)", "--metric-from"]),
        ("sys.exit('no data')", ["sys.exit('no data')"]),
        ("print('no data'); sys.exit(1)", ["sys.exit(1)", "printed last: no data"]),
        ("print('bad value', file=sys.stderr); sys.exit(2)", ["sys.exit(2)", "printed last: bad value"]),
        ("raise RuntimeError('broken')", ["RuntimeError: broken"]),
        ("input()", ["EOFError"]),
        ("open('beside.txt')", ["No such file", "so name /", "/beside.txt"]),
    ],
)
def test_a_script_that_fails_has_the_reason(sweep: Sweep, body: str, words: list[str]) -> None:
    Path("beside.txt").touch()
    result = sweep("ending_script", ENDS.format(body=body), space={"lr": [1.0]})
    error = result.trials[0].error
    assert error is not None
    assert [word for word in words if word not in error.summary] == []


def test_a_parser_that_refuses_a_value_has_its_own_words_in_the_error(sweep: Sweep, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text(HELPER)
    result = sweep("refusing_script", ARGPARSE, space={"lr": ["high"]})
    error = result.trials[0].error
    assert error is not None
    assert "argument --lr: invalid float value: 'high'" in error.summary


def test_a_refusal_has_the_usage_and_ends_no_run_that_goes_on_after_failures(
    sweep: Sweep, one_agent: st.Pool, tmp_path: Path
) -> None:
    (tmp_path / "helper.py").write_text(HELPER)
    call = {"space": {"lr": [1.0, 2.0, 3.0], "other": [1]}, "agents": one_agent}
    result = sweep("unknown_script", ARGPARSE + "# other", **call)
    assert "usage: unknown_script.py [-h] --lr LR" in str(result.reason)
    assert "unrecognized arguments: --other 1" in str(result.reason)
    kept = sweep("unknown_script", ARGPARSE + "# other", name="all", max_failures=None, **call)
    assert [trial.status for trial in kept.trials] == ["failed"] * 3


def test_a_script_that_ends_like_a_parser_after_a_report_fails_its_own_trial_alone(sweep: Sweep) -> None:
    body = "sparktrain.report(loss=1); print('usage: none', file=sys.stderr); sys.exit(2)"
    result = sweep("reporting_script", ENDS.format(body=body), space={"lr": [1.0, 2.0]})
    assert [trial.status for trial in result.trials] == ["failed", "failed"]


def test_a_parameter_that_the_script_does_not_name_is_refused_before_anything_starts(
    sweep: Sweep, tmp_path: Path
) -> None:
    (tmp_path / "helper.py").write_text(HELPER)
    with pytest.raises(FunctionError, match=r"name 'learning_rate' nowhere.*--form"):
        sweep("naming_script", ARGPARSE, space={"learning_rate": [1.0]})
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"form": "--lr"}, "must have VALUE"),
        ({"form": "'NAME VALUE"}, "no words of a command line"),
        ({"metric_from": "loss"}, "0 groups"),
        ({"metric_from": "(a)(b)"}, "2 groups"),
        ({"metric_from": "("}, "no regular expression"),
        ({"metric_file": "/tmp/metrics.json"}, "below the working directory"),
        ({"metric_file": "../metrics.json"}, "below the working directory"),
        ({"keep_files": ["*.pt", "/tmp/*.pt"]}, r"keep_files \('/tmp/\*.pt'\) must be below the working directory"),
        ({"keep_files": ""}, "below the working directory"),
    ],
)
def test_options_of_a_script_are_checked_at_once(options: dict[str, str], words: str) -> None:
    Path("checked_script.py").write_text("print()")
    with pytest.raises(SpecError, match=words):
        st.script("checked_script.py", **options)


def test_the_command_line_takes_a_script_with_arguments(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "helper.py").write_text(HELPER)
    Path("command_script.py").write_text(ARGPARSE)
    words = ["sweep", "command_script.py", "--grid", "lr=1.0,2.0", "--metric", "loss", "--mode", "min", "--local"]
    assert cli.main([*words, "--dir", "runs", "--name", "run", "--json", "--quiet", "--", "--epochs", "2"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert [trial["metrics"]["loss"] for trial in document["trials"]] == [0.0, 1.0]
    Path("functions.py").write_text("def train(lr):\n    return lr")
    assert cli.main(["sweep", "functions.py:train", "--grid", "lr=1.0", "--metric", "m", "--local", "--", "-v"]) == 2
    assert "only a script takes them" in capfd.readouterr().err
    assert cli.main(["sweep", "functions.py", "--grid", "lr=1.0", "--metric", "m", "--local"]) == 2
    assert "write functions.py:train" in capfd.readouterr().err


def test_a_script_runs_in_one_process_unless_the_command_line_has_more(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "helper.py").write_text(HELPER)
    Path("lone_script.py").write_text(ARGPARSE)
    words = ["--param", "lr=2.0", "--metric", "loss", "--local", "--dir", "runs", "--name", "run", "--json", "--quiet"]
    assert cli.main(["run", "lone_script.py", *words]) == 0
    [trial] = json.loads(capfd.readouterr().out)["trials"]
    assert trial["metrics"]["loss"] == 2.0
    assert [path.name for path in Path("runs/run/trials/0000/generation-1").iterdir()] == ["rank-0"]
    Path("functions.py").write_text("def train(lr):\n    return lr")
    assert cli.main(["run", "functions.py:train", *words]) == 2
    assert "pass how many members train: --workers N" in capfd.readouterr().err


def test_a_pattern_needs_a_name_where_the_run_has_no_metric(pool: st.Pool) -> None:
    Path("nameless_script.py").write_text("print('loss: 1')")
    script = st.script("nameless_script.py", metric_from="loss: ([0-9.]+)", form="VALUE")
    result = pool.launch(script, {"lr": [1.0]}, dir="runs", name="run", progress=False)
    assert result.trials[0].error is not None
    assert "has no named group" in result.trials[0].error.summary


@pytest.mark.torch
def test_a_script_of_torch_with_loaders_in_processes_is_a_gang_in_each_trial(sweep: Sweep) -> None:
    result = sweep("ddp_script", DDP, space={"lr": [0.1, 0.2]}, workers_per_trial=2, backend="torch")
    assert [trial.metrics for trial in result.trials] == [
        {"loss": rate, "size": 2.0, "rows": 4.0} for rate in (0.1, 0.2)
    ]


def test_outside_of_a_trial_there_is_no_context_and_a_report_does_nothing() -> None:
    assert st.context() is None
    st.report(3, loss=1.0)
    st.report(loss=1.0)
