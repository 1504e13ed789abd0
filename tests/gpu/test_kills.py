"""After any kill no process holds memory of the GPU: the fixture `nothing_left` measures it after each test."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.mortal import Mortal, generations

GONE_S = 30.0


@pytest.fixture
def holding(tmp_path: Path) -> Iterator[Mortal]:
    """A driver of two trials that hold memory of the GPU."""
    (tmp_path / "hold").touch()
    driver = Mortal("tests.gpu.on_gpu:hold", tmp_path, "tests.support.local_driver").start()
    driver.wait(lambda: len(generations(tmp_path, "start")) == 2, "two trials hold memory of the GPU")
    yield driver
    driver.close()


def members(folder: Path) -> list[int]:
    return [int(path.name.rpartition("-")[2]) for path in folder.glob("start-0-*")]


@pytest.mark.parametrize("victim", ["member", "zygote", "agent", "nursery"])
def test_a_trial_is_retried_on_the_gpu_after_a_kill(tmp_path: Path, holding: Mortal, victim: str) -> None:
    [member] = members(tmp_path)
    chain = [psutil.Process(member), *psutil.Process(member).parents()]
    os.kill(chain[["member", "zygote", "agent", "nursery"].index(victim)].pid, signal.SIGKILL)
    if victim != "member":  # the death of a member by a signal is the result of its trial
        holding.wait(lambda: max(generations(tmp_path, "start")[0]) == 2, "trial 0 starts again")
    (tmp_path / "hold").unlink()
    retried = ["failed", None] if victim == "member" else ["succeeded", 0.0]
    assert holding.result() == [retried, ["succeeded", 1.0]]


def test_the_trials_of_a_killed_driver_leave_the_gpu(holding: Mortal) -> None:
    holding.strike("python").wait_gone(GONE_S)
