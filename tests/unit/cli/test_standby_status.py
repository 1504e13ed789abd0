"""What readers of a run directory show of processes that wait for the loss of a member."""

from pathlib import Path

import pytest

from sparktrain.base.ids import TrialId
from sparktrain.runs import watcher
from sparktrain.state.records import StandbysNoted
from tests.unit.display.test_top_screen import NOW, TopScreen, drawn
from tests.unit.driver.stored import BEGUN, ScriptedRun, looked_at

READY = "standby: 1 ready, model built and step traced"


def test_a_reader_sees_what_waits_while_the_gang_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "answers", lambda driver: True)
    run = ScriptedRun(tmp_path / "runs", "big", total=1, workers=2).begin()
    run.add({"lr": 0.1})
    run.form(0, hosts=("host-a", "host-b"))
    for text in ("standby: 1 starting", READY):
        run.write(StandbysNoted(trial=TrialId(0), text=text, at=run.at))
    view = looked_at(run, BEGUN + 1.0)
    assert view.notes == (READY,)
    assert any(READY in line for line in drawn(TopScreen(view, NOW)))
    run.succeed(0, accuracy=0.9)
    run.end()
    assert looked_at(run, BEGUN + 1.0).notes == ()
