"""The newest step of a member that is killed is in a file, and not in its reports alone."""

import os
import signal
from pathlib import Path

from sparktrain.base.clock import SystemClock
from sparktrain.rundir import newest_step as module
from sparktrain.rundir.newest_step import NewestStep, read_newest_step
from sparktrain.training.collectives.step_notes import StepReports


def test_a_process_that_is_killed_leaves_its_newest_step(tmp_path: Path) -> None:
    reported: list[int] = []
    module.newest_step.mark(3)  # a process without a folder marks nothing
    pid = os.fork()
    if pid == 0:
        module.newest_step.keep_in(tmp_path)
        reports = StepReports(lambda step, training: reported.append(step), SystemClock())
        for step in range(41):
            reports.reached(step)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert read_newest_step(tmp_path) == (40, None)


def test_there_is_none_before_the_first_step_and_without_a_file(tmp_path: Path) -> None:
    assert read_newest_step(tmp_path) == (None, None)
    mark = NewestStep()
    mark.keep_in(tmp_path / "absent")
    mark.mark(3)
    mark.keep_in(tmp_path)
    assert read_newest_step(tmp_path) == (None, None)
    mark.mark(0)
    assert read_newest_step(tmp_path) == (0, None)
    mark.mark(7)
    mark.mark_called(6)
    assert read_newest_step(tmp_path) == (7, 6)
    (tmp_path / "newest-step").write_bytes(b"cut")
    assert read_newest_step(tmp_path) == (None, None)
