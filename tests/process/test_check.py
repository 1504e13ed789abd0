"""`sparktrain check` calls a function for one batch in a process of its own."""

import json
from pathlib import Path
from typing import Any

import pytest

from sparktrain import cli
from sparktrain.base import process_tree
from sparktrain.testing.check_process import checked
from sparktrain.testing.function_check import CheckReport, CheckRequest
from tests.process.harness import alive

SOURCE = """
import os
import subprocess
import sys

from beside import offset

SCALE = {"x": 2.0}

def train(lr, ctx):
    print("printed by the function")
    step = 0
    while not ctx.should_stop():
        ctx.report(step, loss=lr * SCALE["x"], gap=float("nan"))
        ctx.checkpoint.save(step, numbers=[1, 2])
        step += 1
    with open(ctx.log_dir + "/notes.txt", "w") as file:
        file.write(os.environ.get("REPORT", ""))
    return {"loss": offset(lr), "steps": step}

def endless(ctx):
    ctx.report(3, loss=1.0)
    while True:
        wait()

def wait():
    os.sched_yield()

def crashes():
    os.abort()

def raises():
    raise ValueError("no data")

def counts_members(ctx):
    assert ctx.size == 4, "made for four"
    return ctx.scale_lr(0.5)

def gathers(ctx):
    return float(ctx.allgather([1.0]).sum())

def leaves_a_child(pids):
    child = subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.pause()"], start_new_session=True)
    with open(pids, "w") as file:
        file.write(str(child.pid))
"""
KERAS = """
import keras
import numpy as np

def data():
    x = np.ones((640, 2), "float32")
    return x, x[:, :1]

def model_of(optimizer, **options):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(optimizer, loss="mse", **options)
    return model

def train(lr, ctx):
    model = model_of(ctx.distribute(keras.optimizers.SGD(ctx.scale_lr(lr))))
    x, y = data()
    mine, callbacks = ctx.shard((x, y), batch_size=8), ctx.keras_callbacks()
    model.fit(mine, epochs=100, validation_data=(x, y), callbacks=callbacks, verbose=0)
    return {"loss": model.evaluate(x, y, verbose=0), "steps": int(model.optimizer.iterations), "lr": ctx.scale_lr(lr)}

def forgets(ctx):
    model_of("sgd").fit(ctx.shard(data(), batch_size=8), callbacks=ctx.keras_callbacks(), verbose=0)

def connects(ctx):
    with ctx.strategy().scope():
        model = model_of("sgd", steps_per_execution=4)
    model.fit(*data(), verbose=0)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory with the files of a user."""
    (tmp_path / "program.py").write_text(SOURCE)
    (tmp_path / "beside.py").write_text("def offset(lr):\n    return lr + 1\n")
    (tmp_path / "keras_program.py").write_text(KERAS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(name: str, **changes: Any) -> CheckReport:
    return checked(CheckRequest(**({"target": f"program.py:{name}", "params": {}} | changes)))


def test_a_check_reports_what_a_function_does(folder: Path) -> None:
    report = check("train", params={"lr": 0.5}, metric="loss", env={"REPORT": "yes"})

    assert (report.end.status, report.end.problem) == ("ok", "")
    first = {"step": 0, "metrics": {"loss": 1.0, "gap": "nan"}}
    assert report.answer.reports == [first], "the first report ends the loop"
    assert report.answer.result == {"loss": 1.5, "steps": 1.0}
    assert list(report.files.checkpoints) == ["0"]
    assert report.files.log_dir == ["notes.txt"]
    assert set(report.shipment.files) >= {"program.py", "beside.py"}
    assert report.shipment.size_bytes > 0
    assert [name for name in report.shipment.captures if "'SCALE' (dict) used by train at line" in name]
    assert report.gang.backend is None
    assert not list(folder.glob("sparktrain-*")), "no file is left in the working directory"


@pytest.mark.parametrize(
    ("name", "changes", "status", "problem"),
    [
        ("raises", {}, "failed", "ValueError: no data"),
        ("crashes", {}, "crashed", "ended by SIGABRT before the function returned"),
        ("train", {}, "refused", "parameter 'lr' has no value"),
        ("trian", {}, "refused", "did you mean 'train'"),
        ("train", {"params": {"lr": 1}, "metric": "accuracy"}, "failed", "lacks metric 'accuracy'"),
        ("train", {"target": "programm.py:train"}, "refused", "no such file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_check_reports_why_a_function_cannot_be_used(
    folder: Path, name: str, changes: dict[str, Any], status: str, problem: str
) -> None:
    report = check(name, **changes)

    assert report.end.status == status
    assert problem in report.end.problem


def test_a_function_that_does_not_end_is_shown_with_its_line_and_its_reports(folder: Path) -> None:
    report = check("endless", timeout_s=1.0)

    assert report.end.status == "timeout"
    assert "did not end within 1 s" in report.end.problem
    assert "in endless" in report.end.traceback
    assert [each["step"] for each in report.answer.reports] == [3]


def test_a_function_for_a_gang_gets_the_options_that_check_it(folder: Path) -> None:
    alone, of_four = check("counts_members"), check("counts_members", workers=4, backend="none")

    assert alone.end.status == "failed"
    assert alone.hints == ["ctx.size is 1 here: --workers N checks the function as rank 0 of a gang of N"]
    assert (of_four.end.status, of_four.gang.backend, of_four.answer.result) == ("ok", "none", {"result": 2.0})


def test_a_check_leaves_no_process(folder: Path) -> None:
    before = process_tree.children()
    report = check("leaves_a_child", params={"pids": str(folder / "pids")})

    assert report.end.status == "ok"
    assert not alive(int((folder / "pids").read_text()))
    assert process_tree.children() == before


def test_the_command_prints_lines_or_one_object(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    call = ["check", "program.py:train", "--param", "lr=0.5", "--metric", "loss", "--env", "REPORT=yes"]
    codes = [cli.main(call), cli.main([*call, "--json"]), cli.main(["check", "program.py:raises"])]
    printed, stderr = capfd.readouterr()

    assert codes == [0, 0, 3]
    text, document, failed = printed.partition("{\n")[0], printed[printed.index("{\n") :], printed.rpartition("}\n")[2]
    assert text.startswith("program.py:train(lr=0.5): ok, ")
    assert "reports: step 0: loss 1, gap nan\nreturns: loss 1.5, steps 1\nmetric: 'loss' is there\n" in text
    assert json.loads(document.removesuffix(failed))["status"] == "ok"
    assert failed.splitlines()[:2] == ["program.py:raises(): failed", "problem: ValueError: no data"]
    assert stderr.count("printed by the function") == 2


def test_one_batch_of_a_fit_alone_and_as_rank_0_of_several(folder: Path) -> None:
    target = "keras_program.py:train"
    alone = check("", target=target, params={"lr": 0.1}, metric="loss")
    of_four = check("", target=target, params={"lr": 0.1}, workers=4, backend="tensorflow")

    for report, rate in ((alone, 0.1), (of_four, 0.4)):
        assert (report.end.status, report.end.problem) == ("ok", "")
        assert report.answer.result is not None
        assert (report.answer.result["steps"], report.answer.result["lr"]) == (1.0, rate)
        assert [each["step"] for each in report.answer.reports] == [0]
        assert {"loss", "val_loss"} <= set(report.answer.reports[0]["metrics"])
        assert list(report.files.checkpoints) == ["1"]
    assert (alone.gang.mirrored, of_four.gang.mirrored, of_four.gang.backend) == (False, True, "tensorflow")


@pytest.mark.all(
    case="what a gang refuses is reported by a check",
    covered_by="`training/test_lone_member`: a mirrored gang makes the checks of a gang; the reports of other refusals",
)
def test_what_a_gang_refuses_is_reported_before_it_runs(folder: Path) -> None:
    forgot = check("", target="keras_program.py:forgets", workers=2, backend="tensorflow")
    connects = check("", target="keras_program.py:connects", workers=2)

    assert (forgot.end.status, "optimizer=ctx.distribute(...)" in forgot.end.problem) == ("failed", True)
    assert (connects.end.status, connects.gang.backend) == ("ok", "tensorflow")
    assert [line for line in connects.keras_unsupported if line.startswith("model.fit(): steps_per_execution=4 fails")]
    assert connects.hints[0].startswith("ctx.strategy() connects 2 members in a gang alone")
