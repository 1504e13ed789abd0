"""What is printed of a run that another process follows."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from sparktrain.display.status_json import run_json
from sparktrain.display.status_view import StatusScreen
from sparktrain.display.watch import Changes
from sparktrain.runs.view import RunState, RunView

URL = "http://node:40123/?token=right"


@pytest.fixture
def running() -> RunView:
    return RunView(
        name="one", kind="sweep", function="train", directory="/runs/one", state=RunState.RUNNING, ending=None,
        reason="", metric=None, mode="max", gang=1, total=1, started=1.0, driver=None, same_host=False,
        driver_started=5.0, ran_s=1.0, last_record=6.0, trials=(),
    )  # fmt: skip


def test_the_url_of_tensorboard_is_printed_once(running: RunView) -> None:
    lines: list[str] = []
    changes = Changes(lines.append)
    for board in (None, URL, URL, None, URL):
        changes.show(replace(running, board=board))
    changes.show(replace(running, board="http://node:1/?token=of-the-next-driver"))
    assert [line.removeprefix("one: ") for line in lines if "TensorBoard" in line] == [
        f"TensorBoard: {URL}",
        "TensorBoard: http://node:1/?token=of-the-next-driver",
    ]
    assert len(lines) == 3, "the status has not changed"


def test_the_status_of_a_run_has_the_url_of_its_tensorboard(running: RunView) -> None:
    shown = StringIO()
    Console(file=shown, width=200).print(StatusScreen(replace(running, board=URL), 10.0))
    assert f"TensorBoard: {URL}\n" in "".join(f"{line.rstrip()}\n" for line in shown.getvalue().splitlines())
    assert run_json(replace(running, board=URL))["tensorboard"] == URL
    assert run_json(running)["tensorboard"] is None
