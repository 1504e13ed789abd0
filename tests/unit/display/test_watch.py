"""What is printed of a run that another process follows."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.display.status_json import run_json
from sparktrain.display.status_view import StatusScreen
from sparktrain.display.watch import Changes
from sparktrain.runs.view import RunDriver, RunState, RunTimes, RunView
from tests.unit.driver.stored import ScriptedRun, looked_at

URL = "http://node:40123/?token=right"


@pytest.fixture
def running() -> RunView:
    return RunView(
        kind="sweep", function="train", directory="/runs/one", spec=SweepSpec(name="one"), state=RunState.RUNNING,
        end=None, total=1, times=RunTimes(started=1.0, driver_started=5.0, last_record=6.0, ran_s=1.0),
        driver=RunDriver(), trials=(),
    )  # fmt: skip


@pytest.mark.long
def test_a_narrow_status_of_a_large_sweep_cuts_text_and_no_number(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path / "runs", total=10_000).begin()
    run.add(*({"lr": 0.1 / (number + 1), "units": 64} for number in range(10_000)))
    for trial in range(9000, 9064):
        run.form(trial)
        run.report(trial, 12345, accuracy=0.5, loss=0.25)
    run.fail(3)
    shown = StringIO()
    Console(file=shown, width=60).print(StatusScreen(looked_at(run, run.at + 100), run.at + 100))
    lines = [line.rstrip() for line in shown.getvalue().splitlines()]
    assert lines[2] == "1/10000 done  64 were running  1 failed"
    [heading] = [line for line in lines if line.startswith("trial  ")]
    assert heading.split() == ["trial", "report", "metrics", "time", "parameters"]
    first = lines[lines.index(heading) + 1]
    assert first.startswith(" 9000   12345  accuracy 0.5000, ")
    assert first.endswith("…  0:00  lr=1.11099e-05…")
    assert len(first) <= 60
    assert "and 32 more" in lines


def test_the_url_of_tensorboard_is_printed_once(running: RunView) -> None:
    lines: list[str] = []
    changes = Changes(lines.append)
    for board in (None, URL, URL, None, URL):
        changes.show(replace(running, driver=RunDriver(board=board)))
    changes.show(replace(running, driver=RunDriver(board="http://node:1/?token=of-the-next-driver")))
    assert [line.removeprefix("one: ") for line in lines if "TensorBoard" in line] == [
        f"TensorBoard: {URL}",
        "TensorBoard: http://node:1/?token=of-the-next-driver",
    ]
    assert len(lines) == 3, "the status has not changed"


def test_the_status_of_a_run_has_the_url_of_its_tensorboard(running: RunView) -> None:
    shown = StringIO()
    Console(file=shown, width=200).print(StatusScreen(replace(running, driver=RunDriver(board=URL)), 10.0))
    assert f"TensorBoard: {URL}\n" in "".join(f"{line.rstrip()}\n" for line in shown.getvalue().splitlines())
    assert run_json(replace(running, driver=RunDriver(board=URL)))["tensorboard"] == URL
    assert run_json(running)["tensorboard"] is None
