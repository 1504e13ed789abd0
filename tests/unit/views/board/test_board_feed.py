"""What TensorBoard shows of a run's reports, read back by TensorBoard itself."""

import logging
import math
from pathlib import Path
from typing import Any

import pytest

from sparktrain.search import space_json
from sparktrain.search.space import grid, when
from sparktrain.state.trial import TrialStatus
from sparktrain.views.board import board_feed
from sparktrain.views.board.board_feed import END_AFTER_S, BoardFeed
from sparktrain.views.board.hparam_columns import HParamColumns
from sparktrain.views.board.report_events import ReportEvents
from tests.support.board_readers import BoardReader
from tests.unit.driver.stored import HandClock, ScriptedRun

BOOL, TEXT, NUMBER = 2, 1, 3
SUCCESS, FAILURE, UNKNOWN = 1, 2, 0


@pytest.fixture
def run(tmp_path: Path) -> ScriptedRun:
    return ScriptedRun(tmp_path / "runs").begin()


class Shown:
    """A board's folder, and the feed that writes it."""

    def __init__(self, run: ScriptedRun, folder: Path) -> None:
        folder.mkdir()
        self.clock = HandClock()
        self._folder = folder
        self._feed = BoardFeed(run.place, self.clock)
        self.events = ReportEvents(folder)

    def look(self) -> BoardReader:
        """A round, and what TensorBoard then finds."""
        self._feed.round(self.events)
        return BoardReader(self._folder)


@pytest.fixture
def shown(run: ScriptedRun, tmp_path: Path) -> Shown:
    return Shown(run, tmp_path / "board")


def test_curves_grow_with_the_reports(run: ScriptedRun, shown: Shown) -> None:
    run.add({"lr": 0.1}, {"lr": 0.2})
    run.form(0)
    run.note(0, 1, 2, accuracy=0.5)
    assert shown.look().points("0000/sparktrain", "accuracy") == [(1, 0.5), (2, 0.5)]
    run.note(0, 3, accuracy=0.75)
    found = shown.look()
    assert found.points("0000/sparktrain", "accuracy") == [(1, 0.5), (2, 0.5), (3, 0.75)]
    assert found.sessions() == {"trial 0": ({"lr": 0.1}, UNKNOWN, {"accuracy": 0.75})}


def test_a_step_that_a_gang_reports_again_is_there_once(run: ScriptedRun, shown: Shown, tmp_path: Path) -> None:
    run.add({"lr": 0.1})
    run.form(0)
    run.note(0, 0, 1, 2, 3, accuracy=0.5)
    run.note(0, 0, 1, rank=1, accuracy=0.125)
    shown.look()
    run.lose(0)
    run.form(0, generation=2)
    run.note(0, 2, 3, 4, generation=2, accuracy=0.25)
    steps = [(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5), (4, 0.25)]
    assert shown.look().points("0000/sparktrain", "accuracy") == steps
    afresh = Shown(run, tmp_path / "other").look().points("0000/sparktrain", "accuracy")
    assert afresh == [(0, 0.5), (1, 0.5), (2, 0.25), (3, 0.25), (4, 0.25)], "another board has what counts"


def test_trials_end_with_their_status(run: ScriptedRun, shown: Shown) -> None:
    run.add(*({"lr": 0.1 * number} for number in range(5)))
    for trial in range(5):
        run.form(trial)
    run.succeed(0, accuracy=0.5)
    for trial, status in enumerate((TrialStatus.FAILED, TrialStatus.PRUNED, TrialStatus.LOST, TrialStatus.STOPPED), 1):
        run.fail(trial, status=status)
    statuses = {name: row[1] for name, row in shown.look().sessions().items()}
    assert statuses == {
        "trial 0": SUCCESS, "trial 1": FAILURE, "trial 2": SUCCESS, "trial 3": FAILURE, "trial 4": UNKNOWN,
    }  # fmt: skip


def test_the_end_waits_for_the_last_reports(run: ScriptedRun, shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparktrain.runs.watcher.answers", lambda driver: True)
    run.add({"lr": 0.1})
    run.form(0)
    run.note(0, 1, accuracy=0.25)
    run.succeed(0, accuracy=0.5, f1=0.75)
    shown.look()
    assert shown.events.ended(0) is None
    run.note(0, 2, accuracy=0.5)
    shown.clock.at += END_AFTER_S
    found = shown.look()
    assert shown.events.ended(0) is TrialStatus.SUCCEEDED
    assert found.points("0000/sparktrain", "accuracy") == [(1, 0.25), (2, 0.5)]
    assert found.points("0000/sparktrain", "f1") == [(2, 0.75)], "a metric that was returned alone"


def test_a_trial_that_a_resumed_run_starts_again_is_written_anew(run: ScriptedRun, shown: Shown) -> None:
    run.add({"lr": 0.1})
    run.form(0)
    run.note(0, 1, accuracy=0.25)
    run.fail(0, status=TrialStatus.STOPPED)
    run.end("stopped")
    shown.look()
    assert shown.events.ended(0) is TrialStatus.STOPPED
    run.begin("host-9")
    run.form(0, generation=2)
    run.note(0, 2, generation=2, accuracy=0.5)
    run.succeed(0, accuracy=0.5)
    found = shown.look()
    assert found.points("0000/sparktrain", "accuracy") == [(1, 0.25), (2, 0.5)]
    assert found.sessions()["trial 0"][1] == SUCCESS


def test_nested_and_conditional_parameters_have_columns_before_a_trial_has_them(run: ScriptedRun, shown: Shown) -> None:
    run.add({"optimizer": {"name": "sgd", "lr": 0.1}, "bn": True}, {"optimizer": {"name": "adam"}, "momentum": 0.9})
    run.form(0)
    run.note(0, 1, **{"val/accuracy": math.nan, "accuracy": math.inf})
    found = shown.look()
    assert found.columns() == {
        "lr": NUMBER, "optimizer.name": TEXT, "optimizer.lr": NUMBER, "bn": BOOL, "momentum": NUMBER,
    }  # fmt: skip
    assert found.metrics() == ["accuracy", "val/accuracy"]
    assert found.sessions()["trial 0"][0] == {"optimizer.name": "sgd", "optimizer.lr": 0.1, "bn": True}
    assert math.isnan(found.points("0000/sparktrain", "val/accuracy")[0][1])
    assert found.points("0000/sparktrain", "accuracy") == [(1, math.inf)]


def test_a_parameter_that_comes_later_gets_a_column(run: ScriptedRun, shown: Shown) -> None:
    run.add({"lr": 0.1})
    run.form(0)
    assert shown.look().columns() == {"lr": NUMBER}
    run.add({"lr": 0.1, "units": 64})
    assert shown.look().columns() == {"lr": NUMBER, "units": NUMBER}


@pytest.mark.parametrize(
    ("values", "kind", "cells"),
    [
        ([1, 0.5], float, [1.0, 0.5]),
        ([1, "auto"], str, ["1", "auto"]),
        ([True, 1], str, ["true", "1"]),
        ([0.5, None], float, [0.5, None]),
        (["l2", None], str, ["l2", "None"]),
        ([[1, 2], "x"], str, ["[1,2]", "x"]),
    ],
)
def test_a_column_has_values_of_one_kind(values: list[Any], kind: type, cells: list[Any]) -> None:
    columns = HParamColumns()
    columns.see_space(space_json.to_document(grid(x=values, y=when(lambda p: p["x"] == values[0], [1])), None))
    columns.see_space(space_json.to_document(grid(x=values), None))
    assert {each.name: each.kind for each in columns.all} == {"x": kind, "y": float}
    assert [columns.cells({"x": value}).get("x") for value in values] == cells


def test_a_value_that_does_not_fit_a_known_column_has_no_cell() -> None:
    columns = HParamColumns()
    columns.see([{"x": 1}])
    columns.see([{"x": "auto"}])
    assert columns.cells({"x": "auto"}) == {}


def test_of_many_trials_the_best_are_shown(
    run: ScriptedRun, shown: Shown, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(board_feed, "MOST_TRIALS", 4)
    monkeypatch.setattr(board_feed, "BEST_TRIALS", 2)
    run.add(*({"lr": 0.1} for _ in range(6)))
    for trial in range(4):
        run.form(trial)
        run.succeed(trial, accuracy=trial / 10)
    assert set(shown.look().sessions()) == {"trial 0", "trial 1", "trial 2", "trial 3"}
    run.form(4)
    run.report(4, 10, accuracy=0.25)
    run.form(5)
    with caplog.at_level(logging.WARNING, "sparktrain"):
        assert set(shown.look().sessions()) == {"trial 3", "trial 4"}
        shown.look()
    assert caplog.messages == [
        "mnist: TensorBoard shows the best 2 of more than 4 trials, all are in `result.history()`"
    ]
    run.succeed(5, accuracy=0.9)
    run.succeed(4, accuracy=0.1)
    assert set(shown.look().sessions()) == {"trial 3", "trial 5"}
