"""The picture and the keys of `sparktrain top`, without a terminal."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from sparktrain.base.ids import TrialId
from sparktrain.cli.top_command import keys_in
from sparktrain.display.status_json import run_json
from sparktrain.display.top_screen import TopAction, TopKey, TopScreen
from sparktrain.runs import watcher
from sparktrain.runs.view import RunView
from sparktrain.state.records import TrialConcluded
from sparktrain.state.trial import TrialStatus
from tests.unit.driver.stored import BEGUN, ScriptedRun, looked_at, typical

NOW = BEGUN + 100.0


def drawn(screen: TopScreen, width: int = 100, height: int = 12) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(screen)
    lines = captured.get().rstrip("\n").split("\n")
    assert len(lines) <= height
    assert all(len(line.rstrip()) <= width for line in lines)
    return [line.rstrip() for line in lines]


def pressed(screen: TopScreen, *keys: TopKey) -> list[TopAction | None]:
    return [screen.press(key) for key in keys]


@pytest.fixture
def run(tmp_path: Path) -> ScriptedRun:
    return typical(tmp_path / "runs")


@pytest.fixture
def screen(run: ScriptedRun) -> TopScreen:
    return TopScreen(looked_at(run), NOW)


def many(tmp_path: Path, count: int) -> RunView:
    run = ScriptedRun(tmp_path / "many", total=count).begin()
    run.add(*({"lr": 0.001 * number} for number in range(count)))
    for trial in range(0, count, 10):
        run.form(trial)
        run.succeed(trial, accuracy=trial / count)
    return looked_at(run)


def ids(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines if line[:6].strip().isdecimal()]


def test_a_trial_that_has_ended_shows_its_last_step(run: ScriptedRun) -> None:
    """The journal has a report each ten seconds: a trial of 26 steps showed its nineteenth."""
    ended, queued = TrialStatus.SUCCEEDED, TrialId(3)
    run.form(queued)
    run.report(queued, 19, accuracy=0.5)
    run.write(TrialConcluded(trial=queued, status=ended, metrics={"accuracy": 0.6}, step=26, at=run.at))
    view = looked_at(run)
    assert "    26  " in next(line for line in drawn(TopScreen(view, NOW)) if line.startswith("     3"))
    assert [trial["step"] for trial in run_json(view)["trials"]] == [None, None, 150, 26]
    run.form(queued, generation=2)
    assert [trial.step for trial in looked_at(run).trials][3] is None, "another driver retries it"


def test_a_wide_and_a_narrow_picture(screen: TopScreen) -> None:
    wide = drawn(screen)
    assert wide[3].startswith(" trial  status     gen     step    accuracy      time  host")
    assert wide[6] == "     2  running      2      150      0.5000            host-3        lr=0.01 dropout=0.5"
    assert wide[-1] == "↑↓ select  s sort  f filter  l log  x stop  q quit"
    narrow = drawn(screen, 60)
    assert narrow[6] == "     2  running        150      0.5000            lr=0.01 d…"


def test_sorting_keeps_the_selected_trial(screen: TopScreen) -> None:
    pressed(screen, TopKey.DOWN, TopKey.DOWN)
    assert "3/4 by trial" in drawn(screen)[3]
    pressed(screen, TopKey.SORT)
    assert ids(drawn(screen)) == ["3", "2", "0", "1"]
    assert "2/4 by status" in drawn(screen)[3]
    pressed(screen, TopKey.SORT)
    assert ids(drawn(screen)) == ["0", "2", "1", "3"]


def test_a_filter_has_the_states_that_occur(screen: TopScreen) -> None:
    found = []
    for _ in range(5):
        pressed(screen, TopKey.FILTER)
        found.append(ids(drawn(screen)))
    assert found == [["3"], ["2"], ["0"], ["1"], ["0", "1", "2", "3"]]


def test_a_run_is_stopped_after_a_question(run: ScriptedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "answers", lambda driver: True)
    screen = TopScreen(looked_at(run), NOW)
    assert pressed(screen, TopKey.STOP) == [None]
    assert drawn(screen)[-1] == "stop it on host-1: kill -INT 4711"
    monkeypatch.setattr("socket.gethostname", lambda: "host-1")
    screen = TopScreen(looked_at(run), NOW)
    assert pressed(screen, TopKey.STOP, TopKey.OTHER, TopKey.YES) == [None, None, None]
    assert pressed(screen, TopKey.STOP) == [None]
    assert drawn(screen)[-1].startswith("stop the run by SIGINT to process 4711")
    assert pressed(screen, TopKey.YES) == [TopAction.STOP]


def test_a_log_is_shown_until_it_is_left(screen: TopScreen) -> None:
    assert pressed(screen, TopKey.LOG) == [None]
    screen.log_text = "\n".join(f"line {number}" for number in range(50))
    lines = drawn(screen)
    assert (lines[0], lines[-2], lines[-1]) == ("log of trial 0", "line 49", "follows the log  q back")
    assert pressed(screen, TopKey.QUIT, TopKey.QUIT) == [None, TopAction.QUIT]


def test_keys_of_terminals() -> None:
    assert list(keys_in(b"\x1b[A\x1bOBs\r\x1b[6~?\x1b")) == [
        TopKey.UP, TopKey.DOWN, TopKey.SORT, TopKey.LOG, TopKey.PAGE_DOWN, TopKey.OTHER, TopKey.QUIT,
    ]  # fmt: skip
