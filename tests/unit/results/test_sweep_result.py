"""What the user holds after a sweep."""

import math
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from sparktrain.base.ids import TrialId
from sparktrain.config.gang_spec import Role
from sparktrain.config.objectives import constraints
from sparktrain.errors import NoBestTrialError, SpecError
from sparktrain.results.sweep_result import SweepResult
from sparktrain.runs.sweep_outcome import SweepStatus, status_of
from sparktrain.runs.trial_result import MemberResult, TrialResult
from sparktrain.state.outcome import Failure, FailureKind, Loss
from sparktrain.state.trial import TrialStatus
from tests.unit.runs.outcomes import chief

FAILURE = Failure(FailureKind.EXCEPTION, "ValueError: no <units>")


def succeeded(number: int, accuracy: float, **params: Any) -> TrialResult:
    status, metrics = TrialStatus.SUCCEEDED, {"loss": 1.0, "accuracy": accuracy}
    return TrialResult(id=TrialId(number), status=status, params=params, metrics=metrics, seconds=2.0)


def ended(number: int, status: TrialStatus, **params: Any) -> TrialResult:
    return TrialResult(
        id=TrialId(number), status=status, params=params, error=FAILURE, members=chief(f"/runs/{number}/log.txt")
    )


def sweep(*trials: TrialResult, metric: str | None = "accuracy", mode: str = "max") -> SweepResult:
    status = status_of(trials, stopped=False)
    return SweepResult(name="mnist", status=status, metric=metric, mode=mode, seconds=65.0, trials=trials)


@pytest.mark.parametrize(("mode", "best"), [("max", 2), ("min", 0)])
def test_best_by_mode(mode: str, best: int) -> None:
    found = sweep(succeeded(0, 0.1), succeeded(1, 0.5), succeeded(2, 0.9), mode=mode).best
    assert found is not None
    assert found.id == best


def test_of_equals_the_first_is_best() -> None:
    result = sweep(succeeded(0, 0.1), succeeded(1, 0.9), succeeded(2, 0.9))
    assert [trial.id for trial in result.ranked] == [1, 2, 0]


def test_only_succeeded_trials_with_a_finite_metric_are_ranked() -> None:
    other = TrialResult(id=TrialId(3), status=TrialStatus.SUCCEEDED, params={}, metrics={"loss": 0.0})
    trials = (succeeded(0, 0.1), ended(1, TrialStatus.FAILED), succeeded(2, math.nan), other, succeeded(4, math.inf))
    assert [trial.id for trial in sweep(*trials).ranked] == [0]


def test_top_has_the_best_first_and_those_that_break_a_constraint_last() -> None:
    trials = (succeeded(0, 0.1), succeeded(1, 0.9), ended(2, S.FAILED), succeeded(3, 0.5), succeeded(4, math.nan))
    assert [trial.id for trial in sweep(*trials).top(2)] == [1, 3]
    assert [trial.id for trial in sweep(*trials).top()] == [1, 3, 0]
    assert [trial.id for trial in sweep(*trials, mode="min").top(9)] == [0, 3, 1]
    bound = replace(sweep(*trials), constraints=constraints(["accuracy <= 0.6"]))
    assert [trial.id for trial in bound.top(3)] == [3, 0, 1]
    assert bound.top(1)[0] == bound.best

    with pytest.raises(NoBestTrialError, match="no trial of run mnist succeeded"):
        sweep(ended(0, S.FAILED)).top(3)
    for wrong in (0, -1, 1.5, True, "3"):
        with pytest.raises(SpecError, match=r"^k "):
            sweep(*trials).top(wrong)  # type: ignore[arg-type]


def test_there_is_no_best_without_a_metric_or_a_success() -> None:
    for result, words in (
        (
            sweep(succeeded(0, 0.1), metric=None),
            r"has no metric .*: pass metric=, one of loss, accuracy; result",
        ),
        (sweep(ended(0, S.FAILED), metric=None), "has no metric .*: pass metric=, and return that metric"),
        (sweep(), r"no trial of run mnist succeeded \(there are none\)$"),
        (sweep(ended(0, S.QUEUED), ended(1, S.RUNNING)), r"succeeded \(1 queued, 1 running\)"),
        (sweep(succeeded(0, math.nan)), r"has a finite 'accuracy': 1 trial succeeded, see result\.to_pandas\(\)"),
    ):
        with pytest.raises(NoBestTrialError, match=words):
            _ = result.best


def test_where_every_trial_failed_the_commonest_failure_is_shown() -> None:
    rare = TrialResult(
        id=TrialId(0), status=S.LOST, params={}, error=Failure(FailureKind.LOST, "gone"), members=chief("/log/0")
    )
    result = sweep(rare, ended(1, S.FAILED), ended(2, S.FAILED))
    with pytest.raises(NoBestTrialError) as error:
        _ = result.best
    assert str(error.value) == (
        "no trial of run mnist succeeded (1 lost, 2 failed); 2 of 3 failures are exception: ValueError: no <units>; "
        "log of trial 1: /runs/1/log.txt; see result.failures()"
    )
    with pytest.raises(NoBestTrialError, match=r"\(1 lost\); its failure is lost: gone; log of trial 0: /log/0"):
        _ = sweep(rare).best


def test_failures_are_a_table_of_those_alone_that_failed() -> None:
    member = MemberResult(rank=1, role=Role.WORKER, host="gpu-2", log="/runs/2/rank-1/log.txt")
    failure = Failure(FailureKind.MEMORY, "killed", rank=1, host="gpu-2", loss=Loss.MEMORY)
    lost = TrialResult(id=TrialId(2), status=S.LOST, params={}, error=failure, members=(member,), generations=4)
    found = sweep(succeeded(0, 0.5), ended(1, S.FAILED), lost, ended(3, S.STOPPED)).failures()
    assert found.to_dict("records")[1] == {
        "trial": 2, "status": "lost", "kind": "memory", "error": "killed", "host": "gpu-2", "rank": 1, "loss": "memory",
        "generations": 4, "log": "/runs/2/rank-1/log.txt",
    }  # fmt: skip
    assert found["trial"].tolist() == [1, 2]
    assert list(sweep(succeeded(0, 0.5)).failures().columns) == list(found.columns)


def test_text_ends_with_where_the_results_are() -> None:
    result = replace(sweep(succeeded(0, 0.5, lr=0.1)), directory="/runs/my run")
    assert str(result).splitlines()[-2:] == [
        "results and logs: /runs/my run",
        "as a page: sparktrain report '/runs/my run'",
    ]


def test_a_metric_of_whole_numbers_is_a_column_of_integers() -> None:
    sizes = enumerate((98.0, 170.0, 5000.0, 28800.0))
    trials = [replace(succeeded(n, 0.5, x=n), metrics={"accuracy": 0.5, "size": size}) for n, size in sizes]
    result = sweep(*trials)
    assert [line.split()[3] for line in str(result).splitlines()[1:6]] == ["size", "98", "170", "5000", "28800"]


def test_an_error_is_printed_as_text() -> None:
    trace = 'Traceback (most recent call last):\n  File "train.py", line 3, in train\nValueError: no <units>\n'
    failure = Failure(FailureKind.EXCEPTION, "ValueError: no <units>", trace, ("epoch 1",), 0, "gpu-2")
    assert str(failure).splitlines() == [
        "exception: ValueError: no <units> (rank 0, host gpu-2)",
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in train',
        "ValueError: no <units>",
    ]
    killed = Failure(FailureKind.MEMORY, "killed by SIGKILL", log_tail=("epoch 1", "epoch 2"))
    assert str(killed).splitlines() == [
        "memory: killed by SIGKILL", "the last lines that it printed:", "    epoch 1", "    epoch 2",
    ]  # fmt: skip


S = TrialStatus


@pytest.mark.parametrize(
    ("trials", "stopped", "status"),
    [
        ([S.SUCCEEDED, S.SUCCEEDED], False, SweepStatus.SUCCEEDED),
        ([S.SUCCEEDED, S.FAILED], False, SweepStatus.SUCCEEDED),
        ([S.FAILED, S.FAILED], False, SweepStatus.FAILED),
        ([], False, SweepStatus.FAILED),
        ([S.SUCCEEDED, S.LOST], False, SweepStatus.LOST),
        ([S.FAILED, S.LOST], True, SweepStatus.LOST),
        ([S.SUCCEEDED, S.STOPPED], True, SweepStatus.STOPPED),
        ([S.SUCCEEDED], True, SweepStatus.STOPPED),
        ([], True, SweepStatus.STOPPED),
    ],
)
def test_status(trials: list[TrialStatus], stopped: bool, status: SweepStatus) -> None:
    assert status_of([ended(number, trial) for number, trial in enumerate(trials)], stopped=stopped) is status


def test_a_run_that_ended_early_for_its_failures_has_failed_whatever_else_succeeded() -> None:
    trials = [ended(number, trial) for number, trial in enumerate([S.SUCCEEDED, S.FAILED, S.STOPPED])]
    assert status_of(trials, stopped=False, failing=True) is SweepStatus.FAILED


def test_to_pandas_has_a_row_for_each_trial() -> None:
    frame = sweep(
        succeeded(0, 0.5, lr=0.1), succeeded(1, 0.9, lr=0.2, units=[8]), ended(2, S.FAILED, lr=0.3)
    ).to_pandas()
    assert list(frame.columns) == [
        "id", "params.lr", "params.units", "metrics.accuracy", "metrics.loss",
        "status", "seconds", "error", "log", "generations", "host",
    ]  # fmt: skip
    assert list(frame["params.lr"]) == [0.1, 0.2, 0.3]
    assert list(frame["status"]) == ["succeeded", "succeeded", "failed"]
    assert list(frame["metrics.accuracy"].isna()) == [False, False, True]
    assert frame["error"][2] == "ValueError: no <units>"
    assert frame.sort_values("metrics.accuracy").iloc[-2]["id"] == 1


def test_to_pandas_has_what_functions_returned_beside_numbers() -> None:
    frame = sweep(replace(succeeded(0, 0.5, lr=0.1), extra={"note": "warm"}), succeeded(1, 0.9, lr=0.2)).to_pandas()
    assert list(frame.columns)[:5] == ["id", "params.lr", "metrics.accuracy", "metrics.loss", "extra.note"]
    assert (frame["extra.note"][0], frame["extra.note"].isna()[1]) == ("warm", True)


def test_to_pandas_of_no_trial_has_the_columns() -> None:
    assert "status" in sweep().to_pandas().columns


def test_text_is_compact_and_names_the_best() -> None:
    text = str(
        sweep(
            succeeded(0, 0.5, lr=0.1, units=8), succeeded(1, 0.9, lr=0.2, units=8), ended(2, S.FAILED, lr=0.3, units=8)
        )
    )
    assert text.splitlines() == [
        "mnist: succeeded. 3 trials, 1 failed, in 1:05. Best accuracy 0.9000: trial 1.",
        "trial  lr   accuracy  loss  status      time",
        "    0  0.1    0.5000     1  succeeded  2.0 s",
        "    1  0.2    0.9000     1  succeeded  2.0 s  best",
        "    2  0.3                  failed     0.0 s",
        "every trial: units=8",
        "",
        "trial 2 failed: ValueError: no <units>",
        "    log: /runs/2/log.txt",
    ]


def test_text_and_html_have_the_traceback_of_each_cause() -> None:
    trace = 'Traceback (most recent call last):\n  File "train.py", line 3, in train\nValueError: <units>\n'
    failure = Failure(FailureKind.EXCEPTION, "ValueError: <units>", trace)
    trials = [TrialResult(id=TrialId(n), status=S.FAILED, params={"lr": n}, error=failure) for n in range(3)]
    result = sweep(*trials)
    causes = "trials 0, 1, 2 failed: ValueError: <units>\n    Traceback (most recent call last):\n"
    assert causes + '      File "train.py", line 3, in train\n    ValueError: <units>' in str(result)
    page = Tags(result._repr_html_())
    assert page.tags.count("pre") == 1
    assert '      File "train.py", line 3, in train' in "".join(page.texts)


def test_text_of_many_trials_shows_the_best() -> None:
    lines = str(sweep(*(succeeded(number, number / 1000, lr=number) for number in range(500)))).splitlines()
    assert lines[2].split()[0] == "499"
    assert len(lines) == 23
    assert lines[-1] == "the best 20 of 500 trials"


def test_text_of_no_trial() -> None:
    assert str(sweep()) == "mnist: failed. 0 trials, in 1:05."


@pytest.mark.parametrize("long", [1, 8, 40, 200])
def test_text_never_breaks_a_row(long: int) -> None:
    params = {f"parameter_{number}_{'x' * long}": f"value {'y' * long}" for number in range(6)}
    result = sweep(*(succeeded(number, 0.5, **params, lr=number) for number in range(3)))
    assert len(str(result).splitlines()[1]) <= 100


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_html_shows_what_users_named_as_text() -> None:
    attack = "<img src=x onerror=alert(1)>"
    hostile = TrialResult(
        id=TrialId(1),
        status=S.FAILED,
        params={attack: attack},
        error=Failure(FailureKind.EXCEPTION, f"{attack}\x1b[2J"),
    )
    result = SweepResult(
        name=attack, status=SweepStatus.FAILED, metric=attack, reason=attack, trials=(hostile, hostile)
    )
    page = Tags(result._repr_html_())
    assert set(page.tags) == {"div", "p", "b", "table", "tr", "th", "td", "pre"}
    assert sum(attack in text for text in page.texts) >= 4


def test_html_marks_the_best_and_shows_root_causes() -> None:
    page = Tags(sweep(succeeded(0, 0.5, lr=0.1), succeeded(1, 0.9, lr=0.2), ended(2, S.FAILED, lr=0.3))._repr_html_())
    assert page.tags.count("tr") == 4
    assert page.texts.count("best") == 1
    assert "ValueError: no <units>" in page.texts


def test_the_repr_of_a_trial_is_one_line() -> None:
    assert repr(ended(2, S.FAILED, lr=0.3)) == (
        "TrialResult(id=2, status='failed', params={'lr': 0.3}, error='ValueError: no <units>', seconds=0)"
    )
