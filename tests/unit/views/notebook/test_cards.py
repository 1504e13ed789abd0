"""Results and pools at the end of a cell: harmless, small, and always there."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from sparktrain.api import Pool
from sparktrain.base.ids import TrialId
from sparktrain.config.gang_spec import Role
from sparktrain.display.pool_state import PoolState
from sparktrain.driver.pool import AgentPool
from sparktrain.results.run_result import RunResult
from sparktrain.results.stored_result import load
from sparktrain.results.sweep_result import SweepResult
from sparktrain.rundir.report_parts import step_row
from sparktrain.runs.sweep_outcome import SweepStatus
from sparktrain.runs.trial_result import MemberResult, TrialResult
from sparktrain.state.outcome import Failure, FailureKind
from sparktrain.state.trial import TrialStatus
from tests.unit.driver.stored import BEGUN, ScriptedRun
from tests.unit.views.notebook.pages import checked, drawings

MOST = 100_000
HOSTILE = ["<script>alert(1)</script>", "x" * 200, "🙂" * 90, "\x1b[2J"]


def trial(number: int, value: float | None, **params: Any) -> TrialResult:
    status = TrialStatus.FAILED if value is None else TrialStatus.SUCCEEDED
    metrics = {} if value is None else {"loss": value}
    return TrialResult(id=TrialId(number), status=status, params=params, metrics=metrics, seconds=1.0)


def sweep(*trials: TrialResult, name: str = "mnist", metric: str | None = "loss") -> SweepResult:
    return SweepResult(name=name, status=SweepStatus.SUCCEEDED, metric=metric, mode="min", trials=trials)


def test_a_sweep_shows_its_values_below_the_headline() -> None:
    html = sweep(trial(0, 0.5, lr=0.1), trial(1, 0.4, lr=0.2), trial(2, None, lr=0.3))._repr_html_()
    checked(html, MOST)
    [drawing] = drawings(html)
    assert drawing.count("<circle") == 2
    assert html.index("3 trials, 1 failed") < html.index("<svg") < html.index("<table")


@pytest.mark.parametrize(
    "result",
    [
        sweep(),
        sweep(trial(0, 0.5)),
        sweep(trial(0, math.nan), trial(1, math.inf), trial(2, None)),
        sweep(trial(0, 0.5), trial(1, 0.4), metric=None),
        sweep(trial(0, 0.5), trial(1, 0.4), metric="other"),
    ],
)
def test_there_is_no_plot_without_two_values(result: SweepResult) -> None:
    html = result._repr_html_()
    checked(html, MOST)
    assert "<svg" not in html
    assert result.name in html


@pytest.mark.parametrize("values", [(math.nan, 1.0, 2.0), (1e300, -1e300, 0.0), (1e-300, 1e300, 1.0), (1.0, 1.0, 1.0)])
def test_any_values(values: tuple[float, ...]) -> None:
    html = sweep(*(trial(number, value) for number, value in enumerate(values)))._repr_html_()
    checked(html, MOST)
    assert len(drawings(html)) == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_what_users_named_is_text(name: str) -> None:
    trials = [
        TrialResult(
            id=TrialId(number), status=TrialStatus.SUCCEEDED, params={name: name, "lr": number},
            metrics={name: float(number)}, seconds=1.0,
        )
        for number in range(3)
    ]  # fmt: skip
    html = sweep(*trials, name=name, metric=name)._repr_html_()
    page = checked(html, MOST)
    assert "script" not in page.tags
    assert "\x1b" not in html
    assert len(drawings(html)) == 1


@pytest.mark.long
def test_a_table_that_is_too_large_is_shown_as_text() -> None:
    wide = {f"parameter_{number}": 0.5 for number in range(600)}
    result = sweep(*(trial(number, 0.5, **{**wide, **dict.fromkeys(wide, number)}) for number in range(40)))
    page = checked(result._repr_html_(), MOST)
    assert "<table" not in page.html
    assert page.html.startswith("<div>\n<p><b>mnist: succeeded. 40 trials")
    assert "<svg" in page.html
    assert any("39  param…=39 param…=39" in text for text in page.texts)


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_a_parameter_that_raises_leaves_the_headline() -> None:
    html = sweep(trial(0, 0.5, lr=Broken()), trial(1, 0.4, lr=Broken()))._repr_html_()
    checked(html, MOST)
    assert "mnist: succeeded. 2 trials" in html


def test_a_result_reads_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a result reads its store")

    monkeypatch.setattr("sparktrain.runs.run_files.place_of", refuse)
    result = SweepResult(name="a", status=SweepStatus.SUCCEEDED, directory="hdfs://nowhere/a", trials=(trial(0, 1.0),))
    assert "a: succeeded" in result._repr_html_()
    assert "a: succeeded" in RunResult(result)._repr_html_()


def test_a_run_shows_the_curves_that_were_read_and_no_others(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path, "big", total=1, workers=2).begin()
    run.add({})
    run.form(0, hosts=("a", "b"))
    for rank in range(2):
        run.record([step_row(0, 1, rank, step, BEGUN, {"loss": 1 / step, "accuracy": 0.5}) for step in range(1, 9)])
    run.succeed(0, accuracy=0.5)
    run.end()
    result = load(run.directory)
    assert "<svg" not in result._repr_html_()
    result.history()
    html = result._repr_html_()
    checked(html, MOST)
    assert [each.count("<polyline") for each in drawings(html)] == [1, 1]
    assert [re.search('aria-label="([^"]+)"', each)[1] for each in drawings(html)] == [  # type: ignore[index]
        "accuracy by step", "loss by step",
    ]  # fmt: skip


def test_a_run_with_thousands_of_members_is_limited() -> None:
    members = tuple(MemberResult(rank=rank, role=Role.WORKER, host="h" * 200, log="/l" * 100) for rank in range(3000))
    page = checked(RunResult(sweep(replace(trial(0, 1.0), members=members)))._repr_html_(), MOST)
    assert any("on 3000 members" in text for text in page.texts)


def test_a_long_error_is_limited() -> None:
    error = Failure(FailureKind.EXCEPTION, "ValueError: " + "<" * 200_000, "\n".join(["x" * 5000] * 400))
    failed = [TrialResult(id=TrialId(n), status=TrialStatus.FAILED, params={}, error=error) for n in range(3)]
    checked(sweep(*failed)._repr_html_(), MOST)


class Agents:
    def __init__(self, state: PoolState) -> None:
        self._state = state

    def state(self) -> PoolState:
        return self._state


@pytest.mark.parametrize(
    ("state", "line"),
    [
        (PoolState("local[2]", 2, 1, (), True), "pool on local[2]: 1 of 2 agents, idle"),
        (PoolState("yarn", 1, 1, ("<b>",), True), "pool on yarn: 1 of 1 agent, on run <b>"),
        (PoolState("yarn", 1, 1, ("a", "b"), True), "pool on yarn: 1 of 1 agent, on runs a, b"),
        (PoolState("yarn", 2, 0, (), False), "pool on yarn: closed; open a new one with sparktrain.pool()"),
    ],
)
def test_a_pool(state: PoolState, line: str) -> None:
    pool = Pool(cast(AgentPool, Agents(state)))
    assert repr(pool) == line
    page = checked(pool._repr_html_(), 1000)
    assert "".join(page.texts) == line
