"""The examples of scripts with libraries of PyTorch: they train in gangs and sweeps, and resume after a kill."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain import cli

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "scripts"
RUN_S = 240.0
CASES = {
    "lightning": ["lightning_trainer", "--devices", "2"],
    "lightning-fsdp": ["lightning_trainer", "--devices", "2", "--fsdp"],
    "accelerate": ["accelerate_loop"],
    "transformers": ["transformers_trainer"],
    "torchdata": ["stateful_loader"],
}
SAVES = {"torchdata": 8}
"""The first epoch of this script has six checkpoints."""
JUDGED = {"lightning": "val_loss", "transformers": "eval_loss"}
RANKS = """
import sys  # --lr
imported = "lightning.pytorch" in sys.modules
import torch.distributed as dist
from lightning.pytorch.utilities import rank_zero_only
import sparktrain

dist.init_process_group("gloo")
ranks = [None, None]
dist.all_gather_object(ranks, rank_zero_only.rank)
sparktrain.report(imported=int(imported), rank=ranks[1])
dist.destroy_process_group()
"""
CLASSES = """
from transformers import HfArgumentParser, TrainingArguments
import sparktrain

[arguments] = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
sparktrain.report(
    loss=arguments.learning_rate, workers=arguments.dataloader_num_workers,
    drops=int(arguments.dataloader_drop_last), pins=int(arguments.dataloader_pin_memory),
)
"""
FOLDERS = """
from pathlib import Path

import sparktrain
import torch.distributed as dist
from sparktrain.torch.checkpoint_folder import restored_folder, save_folder

def content(rank):
    return b"0123456789abcdef" * 2**rank * 2**20 + bytes([rank])

dist.init_process_group("gloo")
ctx = sparktrain.context()
folder = restored_folder()
if folder is None:
    Path("saved").mkdir()
    Path("saved", f"rank-{ctx.rank}.bin").write_bytes(content(ctx.rank))
    save_folder(1, "saved")
    if ctx.trial == 0:
        dist.barrier()  # the chief is killed once its checkpoint is in the store
else:
    are_equal = [Path(folder, f"rank-{rank}.bin").read_bytes() == content(rank) for rank in range(2)]
    sparktrain.report(equal=sum(are_equal))
dist.destroy_process_group()
"""
each_case = pytest.mark.parametrize("case", CASES)

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


def launched(script: Any, rates: list[float], **options: Any) -> st.SweepResult:
    return st.launch(
        st.local(slots=2), script, {"lr": rates}, workers_per_trial=2, backend="torch", dir="runs", name="run",
        progress=False, **options,
    )  # fmt: skip


def metric_of(metrics: dict[str, Any]) -> float:
    return next(metrics[name] for name in ("val_loss", "eval_loss", "loss") if name in metrics)


@each_case
def test_a_killed_member_costs_its_sweep_no_step_before_the_checkpoint(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script, *arguments = CASES[case]
    words = [str(SAVES.get(case, 2)), str(SCRIPTS / f"{script}.py"), *arguments]
    result = launched(st.script(Path(__file__).with_name("killed_script.py"), *words), [0.02, 0.02])
    broken, whole = result.trials
    assert [trial.error for trial in result.trials] == [None, None]
    assert [trial.generations for trial in (broken, whole)] == [2, 1]
    assert [restart.kind for restart in broken.restarts] == ["killed"]
    assert broken.restarts[0].resumed_from_step > 0
    assert metric_of(broken.metrics) == pytest.approx(metric_of(whole.metrics), rel=1e-5)
    assert list(broken.history["step"]) == list(whole.history["step"])
    assert metric_of(broken.metrics) < 0.7 * next(iter(whole.history["loss"]))


def test_parts_of_a_model_of_lightning_are_restored_by_another_number_of_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = st.script(SCRIPTS / "lightning_trainer.py", "--fsdp")
    call: dict[str, Any] = {"backend": "torch", "dir": "runs", "progress": False}
    space = {"lr": [0.02], "devices": [2], "epochs": [2]}
    swept = st.sweep(
        script, space, workers_per_trial=2, metric="val_loss", mode="min", spark=st.local(slots=2), name="two", **call
    )
    [trial] = swept.trials
    spark = st.local(slots=1)
    refitted = st.refit(swept, {"devices": 1, "epochs": 3}, workers=1, spark=spark, name="one", **call)
    assert min(refitted.history()["epoch"].dropna()) == max(trial.history["epoch"].dropna()) + 1
    assert refitted.metrics["val_loss"] < 0.9 * trial.metrics["val_loss"]


@pytest.mark.parametrize("case", [case for case in CASES if case != "lightning-fsdp"])
def test_a_script_takes_the_place_of_torchrun_and_reports(case: str, tmp_path: Path) -> None:
    script, *arguments = CASES[case]
    command = [sys.executable, "-m", "sparktrain.torch", "--nproc-per-node", "2", "--dir", "runs", "--name", "run"]
    ended = subprocess.run(
        [*command, str(SCRIPTS / f"{script}.py"), "--epochs", "2", *arguments],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=RUN_S,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    [trial] = json.loads((tmp_path / "runs" / "run" / "results.json").read_text())["trials"]
    assert metric_of(trial["metrics"]) < 10


@each_case
def test_the_command_line_sweeps_over_a_script(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(SCRIPTS))
    script, *arguments = CASES[case]
    metric = JUDGED.get(case.partition("-")[0], "loss")
    gang = ["--workers-per-trial", "2", "--backend", "torch", "--local", "--slots", "2"]
    run = ["--grid", "lr=0.01,0.02", "--metric", metric, "--mode", "min", "--dir", "runs", "--json", "--quiet"]
    words = ["sweep", str(SCRIPTS / f"{script}.py"), *run, *gang, "--", "--epochs", "1", *arguments]
    assert cli.main(words) == 0
    trials = json.loads(capfd.readouterr().out)["trials"]
    assert [trial["status"] for trial in trials] == ["succeeded", "succeeded"]
    assert len({metric_of(trial["metrics"]) for trial in trials}) == 2


@pytest.mark.parametrize("case", JUDGED)
def test_a_stop_rule_ends_all_members_early(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script, *arguments = CASES[case]
    words = [str(SCRIPTS / f"{script}.py"), "--epochs", "9", *arguments]
    rule = st.Threshold(upper=0.0)
    result = launched(st.script(*words), [0.02], metric=JUDGED[case], mode="min", stopper=rule)
    [trial] = result.trials
    assert trial.status == "pruned"
    assert max(trial.history["epoch"]) <= 2


def test_members_have_their_own_rank_in_lightning_that_their_zygote_has_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("ranks.py").write_text(RANKS)
    result = launched(st.script("ranks.py"), [0.1], metric="rank", mode="min")
    assert result.trials[0].error is None
    assert result.trials[0].metrics == {"imported": 1.0, "rank": 1.0}


def test_the_parser_of_transformers_gets_options_of_its_own_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("classes.py").write_text(CLASSES)
    space = {"learning_rate": [1e-5], "dataloader_num_workers": [2]}
    space |= {"dataloader_drop_last": [True, False], "dataloader_pin_memory": [False]}
    script = st.script("classes.py", "--output_dir", "out")
    run = {"metric": "loss", "mode": "min", "dir": "runs", "progress": False}
    result = st.sweep(script, space, spark=st.local(slots=1), name="run", **run)
    expected = {"loss": 1e-5, "workers": 2.0, "pins": 0.0}
    assert [trial.metrics for trial in result.trials] == [expected | {"drops": drops} for drops in (1.0, 0.0)]
    refused = st.sweep(script, {"unknown": [1, 2]}, spark=st.local(slots=1), name="refused", **run)
    assert "a first trial failed" in str(refused.reason)
    assert "--unknown" in str(refused.reason)


def test_a_folder_has_the_files_that_only_other_members_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folders.py").write_text(FOLDERS)
    script = st.script(Path(__file__).with_name("killed_script.py"), "1", str(tmp_path / "folders.py"))
    result = launched(script, [0.1])
    assert result.trials[0].error is None
    assert result.trials[0].metrics == {"equal": 2.0}
