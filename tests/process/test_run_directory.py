"""The command line inspects a run while it trains, after its driver was killed, and resumes it by its directory."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from sparktrain import cli
from sparktrain.base.clock import SystemClock
from sparktrain.runs.locate import run_in
from sparktrain.runs.watcher import Observer
from tests.spark.command import finish, start
from tests.support.processes import Sighted, descendants, wait_until

GONE_S = 10.0
LOOK_S = 30.0
TRAIN = """
import os
import numpy as np
from sparktrain.base.clock import pause

def train(x, gate, ctx):
    restored = ctx.checkpoint.restore()
    step = 0 if restored is None else restored.step
    print("from", step)
    while step < 4:
        step += 1
        ctx.report(step, value=float(x * step))
        ctx.checkpoint.save(step, state=np.array([step]))
    while x and os.path.exists(gate):
        pause(0.02)
    return {"y": x}
"""


class Shell:
    """A user who inspects the run from another process than its driver."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.directory = str(folder / "runs" / "run")
        self._capfd = capfd
        self._observer: Observer | None = None

    def __call__(self, name: str, *words: str) -> tuple[int, str]:
        """Run a command with the run directory; return its exit code and output."""
        self._capfd.readouterr()
        code = cli.main([name, self.directory, *words])
        return code, self._capfd.readouterr().out

    def status(self) -> dict[str, Any]:
        code, out = self("status", "--json")
        assert code == 0
        found: dict[str, Any] = json.loads(out)
        return found

    def halfway(self) -> bool:
        """Whether trial 0 has its result, and trial 1 its last checkpoint."""
        if not Path(self.directory, "run.json").exists():
            return False
        self._observer = self._observer or Observer(run_in(self.directory), SystemClock())
        trials = self._observer.look().trials
        if len(trials) < 2 or trials[1].checkpoint is None or trials[1].report is None:
            return False
        return (trials[0].result.status, trials[1].checkpoint.step) == ("succeeded", 4)


def check_running(shell: Shell, pid: int) -> None:
    seen = shell.status()
    assert (seen["state"], seen["status"], seen["total"], seen["best"]["id"]) == ("running", None, 2, 0)
    assert (seen["driver"]["pid"], seen["driver"]["answers"]) == (pid, True)
    trial = seen["trials"][1]
    assert (trial["status"], trial["report"]["metrics"]) == ("running", {"value": trial["report"]["step"]})
    assert "running for" in shell("status")[1]
    wait_until(lambda: shell("logs", "1")[1].startswith("from 0\n"), LOOK_S, "the log")
    assert shell("gc")[0] == 2, "its driver is alive"


def check_gone(shell: Shell) -> None:
    assert (shell.status()["state"], shell.status()["complete"]) == ("gone", False)
    text = shell("status")[1]
    assert "its driver is gone" in text
    assert f"resume with: sparktrain resume {shell.directory}" in text
    code, examined = shell("fsck")
    assert (code, "resume: trial 1 resumes from step 4" in examined) == (0, True)


def check_resumed(shell: Shell, result: bytes) -> None:
    trials = json.loads(result)["trials"]
    assert [(trial["status"], trial["metrics"], trial["generations"]) for trial in trials] == [
        ("succeeded", {"y": 0.0}, 1),
        ("succeeded", {"y": 1.0}, 2),
    ]
    assert trials[1]["restarts"][0]["resumed_from_step"] == 4
    assert shell("logs", "1") == (0, "from 4\n")
    seen = shell.status()
    assert (seen["state"], seen["status"], seen["complete"]) == ("ended", "succeeded", True)
    assert shell("best")[1].startswith("trial 1: y 1\n")
    assert shell("fsck")[0] == 0
    code, again, stderr = finish(start(shell.folder, "resume", shell.directory, "--json", JAVA_HOME=str(shell.folder)))
    assert (code, again) == (0, result), stderr  # a complete run needs no engine
    assert shell("gc", "--checkpoints", "none")[1].startswith("run: deleted 4 checkpoints")
    assert shell("fsck")[0] == 0


def test_a_run_is_inspected_loses_its_driver_and_is_resumed_by_its_directory(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(tmp_path, capfd)
    target, gate = tmp_path / "train_run_directory.py", tmp_path / "gate"
    target.write_text(TRAIN)
    gate.touch()
    options = ("--metric", "y", "--mode", "max", "--local", "--dir", str(tmp_path / "runs"), "--name", "run")
    driver = start(tmp_path, "sweep", f"{target}:train", "--grid", "x=0,1", "--grid", f"gate={gate}", *options)
    everything = Sighted([driver.pid])
    try:
        wait_until(lambda: shell.halfway() or driver.poll() is not None, 100.0, "checkpoints")
        assert driver.poll() is None, finish(driver)
        check_running(shell, driver.pid)
        everything = Sighted([driver.pid, *(each.pid for each in descendants(driver.pid))])
        os.kill(driver.pid, signal.SIGKILL)
        driver.communicate(timeout=LOOK_S)
        everything.wait_gone(GONE_S)
        check_gone(shell)
        gate.unlink()
        code, result, stderr = finish(start(tmp_path, "resume", shell.directory, "--local", "--json"))
        assert code == 0, stderr
        check_resumed(shell, result)
    finally:
        everything.kill()
