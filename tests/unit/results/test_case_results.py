"""The result of a sweep with repeats and folds."""

import json

import pytest

from sparktrain.base.ids import TrialId
from sparktrain.errors import NoBestTrialError
from sparktrain.results.sweep_result import SweepResult
from sparktrain.runs.results_json import from_json, to_bytes, to_json
from sparktrain.runs.sweep_outcome import SweepStatus
from sparktrain.runs.trial_result import TrialResult
from sparktrain.state.trial import TrialStatus

SHAPE = {"repeats": 2, "folds": 2}
STATUSES = {"s": TrialStatus.SUCCEEDED, "f": TrialStatus.FAILED, "p": TrialStatus.PRUNED, "l": TrialStatus.LOST}


def trial(number: int, status: str, value: float) -> TrialResult:
    metrics = {"accuracy": value, "loss": 1 - value} if status == "s" else {}
    return TrialResult(
        id=TrialId(number), params={"lr": number // 4, "epochs": 3}, status=STATUSES[status], metrics=metrics,
        seconds=2.0, case=number // 4, repeat=number % 4 // 2, fold=number % 2,
    )  # fmt: skip


def result(*cases: str, values: tuple[float, ...] = (0.5, 0.75, 0.5, 0.75)) -> SweepResult:
    """Each case better than the one before by 0.125; its statuses as letters."""
    trials = [
        trial(4 * number + place, status, values[place] + 0.125 * number)
        for number, case in enumerate(cases)
        for place, status in enumerate(case)
    ]
    return SweepResult(
        name="cv", status=SweepStatus.SUCCEEDED, metric="accuracy", seconds=65.0, trials=tuple(trials), **SHAPE
    )  # type: ignore[arg-type]


def test_the_best_case_has_the_best_mean_and_the_best_trial_is_its_own() -> None:
    found = result("ssss", "ssfs", "sspp", "sssl")
    assert [case.status.value for case in found.cases] == ["succeeded", "succeeded", "pruned", "lost"]
    assert found.best_case.id == 1
    assert found.best_case.trials == (4, 5, 6, 7)
    assert (found.best_case.n, found.best_case.params) == (3, {"lr": 1, "epochs": 3})
    assert found.best_case.metrics["accuracy"] == pytest.approx((0.625 + 0.875 + 0.875) / 3)
    assert found.best.id == 5, "trials of pruned and lost cases have more"
    assert [each.id for each in found.ranked] == [5, 7, 4, 1, 3, 0, 2]
    assert found.cases[0].standard_errors["accuracy"] == pytest.approx(0.25 / 3**0.5 / 2)
    assert found.cases[0].seconds == 8.0


def test_one_value_has_no_standard_error() -> None:
    [case] = result("sfff").cases
    assert (case.n, case.metrics["accuracy"], case.standard_errors["accuracy"]) == (1, 0.5, None)


def test_a_sweep_without_repeats_has_a_case_for_each_trial() -> None:
    found = SweepResult(
        name="one", status=SweepStatus.SUCCEEDED, metric="accuracy", trials=(trial(0, "s", 0.5), trial(1, "f", 0.0))
    )
    assert [(case.id, case.trials, case.n) for case in found.cases] == [(0, (0,), 1), (1, (1,), 0)]
    assert found.best_case.metrics["accuracy"] == 0.5
    assert "cases" not in to_json(found)


def test_no_case_is_complete() -> None:
    with pytest.raises(NoBestTrialError, match=r"no set of parameters of run cv has .* each of its 4 trials.*1 pruned"):
        _ = result("sspp").best
    with pytest.raises(NoBestTrialError, match="no trial of run cv succeeded"):
        _ = result("ffff").best_case


def test_results_json_has_the_cases() -> None:
    found = result("ssss", "sspp")
    data = json.loads(to_bytes(found))
    assert (data["repeats"], data["folds"]) == (2, 2)
    assert data["best"]["id"] == 1
    assert data["best_case"] == data["cases"][0]
    assert data["cases"][1] == {
        "id": 1, "params": {"lr": 1, "epochs": 3}, "metrics": {"accuracy": 0.75, "loss": 0.25},
        "standard_errors": {"accuracy": 0.125, "loss": 0.125}, "n": 2, "status": "pruned", "seconds": 8.0,
        "trials": [4, 5, 6, 7],
    }  # fmt: skip
    assert [data["trials"][6][name] for name in ("case", "repeat", "fold")] == [1, 1, 0]
    again = from_json(data)
    assert again.cases == found.cases
    assert again.trials == found.trials


def test_the_table_shows_cases() -> None:
    lines = str(result("ssss", "sspp", "ffff")).splitlines()
    assert lines[0] == (
        "cv: succeeded. 12 trials, 2 pruned, 4 failed, in 1:05. Best accuracy 0.6250 ± 0.0722 (n=4): case 0."
    )
    assert lines[1].split() == ["case", "lr", "accuracy", "loss", "status", "time"]
    assert lines[2].split() == [
        "0", "0", "0.6250", "±", "0.0722", "(n=4)", "0.3750", "±", "0.0722", "(n=4)", "succeeded", "8.0", "s",
        "best",
    ]  # fmt: skip
    assert "0.7500 ± 0.1250 (n=2)" in lines[3]
    assert lines[4].split()[:3] == ["2", "2", "failed"]
    assert "<td" in result("ssss")._repr_html_()


def test_the_table_shows_what_failed_trials_leave_out() -> None:
    lines = str(result("ssss", "ssfs")).splitlines()
    assert "(n=3)" in lines[3]
    assert "trials have failed in case 1: its means are of the n of 4 trials that succeeded" in lines


def test_columns_of_a_frame() -> None:
    frame = result("ssss", "sspp").to_pandas()
    assert list(frame.columns[:6]) == ["id", "case", "repeat", "fold", "params.lr", "params.epochs"]
    assert frame[["case", "repeat", "fold"]].to_numpy().tolist()[5] == [1, 0, 1]
    assert "case" not in SweepResult(name="one", status=SweepStatus.SUCCEEDED).to_pandas().columns


def test_a_study_has_case_repeat_and_fold() -> None:
    study = result("ssss").to_study()
    assert [study.trials[3].user_attrs[f"sparktrain:{name}"] for name in ("case", "repeat", "fold")] == [0, 1, 1]
