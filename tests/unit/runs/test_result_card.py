"""`result.best` at the end of a cell: a card, escaped and small, whatever it has."""

from typing import Any

from sparktrain.base.ids import TrialId
from sparktrain.runs.case_result import CaseResult
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.outcome import Failure, FailureKind
from sparktrain.state.trial import TrialStatus
from tests.unit.runs.outcomes import chief

HOSTILE = "<script>alert(1)</script>"


def trial(status: TrialStatus = TrialStatus.SUCCEEDED, **more: Any) -> TrialResult:
    return TrialResult(**{"id": TrialId(3), "params": {}, "status": status, **more})


def test_a_trial_is_a_card() -> None:
    params = {"lr": 0.01, "optimizer": {"name": "adam", "eps": 1e-7}}
    html = trial(params=params, metrics={"loss": 0.25}, seconds=75.0, members=chief("", "node-3"))._repr_html_()
    for words in ("Trial 3: succeeded", "optimizer.name", "adam", "1e-07", "loss", "0.25", "1:15", "node-3"):
        assert f">{words}<" in html
    assert "log" not in html, "a fact without a value has no row"


def test_a_trial_that_failed_names_why() -> None:
    html = trial(TrialStatus.FAILED, error=Failure(FailureKind.EXCEPTION, HOSTILE))._repr_html_()
    assert "Trial 3: failed" in html
    assert "&lt;script&gt;" in html


def test_what_users_named_is_text_and_the_card_is_small() -> None:
    class Broken:
        def __str__(self) -> str:
            raise ValueError("no text")

    params = {HOSTILE: "x" * 100_000, "broken": Broken(), "\ud800": "\ud800", **{f"p{n}": n for n in range(500)}}
    html = trial(params=params, metrics={HOSTILE: 0.5})._repr_html_()
    assert "<script" not in html
    assert "a Broken" in html
    assert len(html.encode()) < 30_000


def test_a_case_is_a_card() -> None:
    case = CaseResult(
        id=1, params={"lr": 0.1}, status=TrialStatus.SUCCEEDED, trials=(TrialId(2), TrialId(3)), n=2,
        metrics={"accuracy": 0.9}, standard_errors={"accuracy": 0.01, "other": None}, seconds=3.0,
    )  # fmt: skip
    html = case._repr_html_()
    for words in ("Case 1: succeeded, 2 of 2 trials succeeded", "Standard errors", "0.01", "[2, 3]", "3.0 s"):
        assert f">{words}<" in html
    assert "other" not in html
