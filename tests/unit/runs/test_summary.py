"""`results.json`, and the final table."""

import json
import math
from dataclasses import replace
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from sparktrain.config.gang_spec import Role
from sparktrain.errors import SpecError
from sparktrain.ids import TrialId
from sparktrain.runs.results import MemberResult, SweepResult, SweepStatus, TrialResult
from sparktrain.runs.summary import from_json, summary_table, to_bytes, to_json
from sparktrain.state.outcome import Failure, FailureKind, Loss, Restart
from sparktrain.state.trial import TrialStatus

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in train\nValueError: units'
FAILURE = Failure(FailureKind.EXCEPTION, "ValueError: units", TRACEBACK, ("epoch 1",), 0, "node-2")
MEMBERS = (
    MemberResult(rank=0, role=Role.CHIEF, host="node-1", log="/runs/a"),
    MemberResult(rank=1, role=Role.WORKER, host=None, log="/runs/b"),
)
RESTART = Restart(1, "node-3", FailureKind.LOST, "agent on node-3 was lost", 1.25, 80, 40, Loss.PREEMPTED)
GOOD = TrialResult(
    id=TrialId(0), status=TrialStatus.SUCCEEDED, params={"lr": 0.1}, metrics={"accuracy": 0.9}, seconds=3.5,
    log="/runs/mnist/trials/0000/generation-1/rank-0/log.txt", generations=2, host="node-1", members=MEMBERS,
    restarts=(RESTART,), unsaved="step 90 was not checkpointed: the disk is full",
    notices=("all members had the same batch",),
)  # fmt: skip
BAD = TrialResult(
    id=TrialId(1), status=TrialStatus.FAILED, params={"lr": 10.0}, error=FAILURE, seconds=1.0,
    log="/runs/mnist/trials/0001/generation-1/rank-0/log.txt", generations=1, host="node-2",
)  # fmt: skip
RESULT = SweepResult(
    name="mnist",
    status=SweepStatus.SUCCEEDED,
    metric="accuracy",
    seconds=12.0,
    directory="/runs/mnist",
    trials=(GOOD, BAD),
)

texts = st.text(max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers()
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
ranks, hosts, kinds = st.integers(0, 99), st.none() | texts, st.sampled_from(FailureKind)
failures = st.builds(Failure, kinds, texts, texts, st.lists(texts, max_size=3).map(tuple), st.none() | ranks, hosts)
members = st.builds(MemberResult, rank=ranks, role=st.sampled_from(Role), host=hosts, log=texts)
steps = st.none() | st.integers(0, 10**9)
restarts = st.builds(Restart, ranks, hosts, kinds, texts, st.floats(0, 1e9), steps, steps)
trials = st.builds(
    TrialResult,
    id=st.integers(0, 9999).map(TrialId),
    params=st.dictionaries(texts, json_values, max_size=3),
    status=st.sampled_from([status for status in TrialStatus if status.final]),
    metrics=st.dictionaries(texts, st.floats(), max_size=3),
    seconds=st.floats(0, 1e9),
    log=st.none() | texts,
    error=st.none() | failures,
    generations=st.integers(0, 99),
    host=hosts,
    members=st.lists(members, max_size=2).map(tuple),
    restarts=st.lists(restarts, max_size=2).map(tuple),
    unsaved=texts,
    notices=st.lists(texts, max_size=2).map(tuple),
)
sweeps = st.builds(
    SweepResult,
    name=texts,
    status=st.sampled_from(SweepStatus),
    metric=st.none() | texts,
    mode=st.sampled_from(["max", "min"]),
    seconds=st.floats(0, 1e9),
    directory=st.none() | texts,
    trials=st.lists(trials, max_size=4).map(tuple),
    reason=st.none() | texts,
)


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


@given(sweeps)
def test_what_is_written_is_strict_json_and_reads_back(result: SweepResult) -> None:
    data = json.loads(to_bytes(result), parse_constant=refuse)
    assert data == to_json(result)
    again = from_json(data)
    for trial, known in zip(again.trials, result.trials, strict=True):
        assert trial.metrics.keys() == known.metrics.keys()
        for name, value in known.metrics.items():
            assert math.isnan(trial.metrics[name]) if not math.isfinite(value) else trial.metrics[name] == value
    without_metrics = [
        replace(of, trials=tuple(replace(trial, metrics={}) for trial in of.trials)) for of in (result, again)
    ]
    assert without_metrics[0] == without_metrics[1]
    assert to_bytes(again) == to_bytes(result)


def test_every_field() -> None:
    good = {
        "id": 0, "params": {"lr": 0.1}, "metrics": {"accuracy": 0.9}, "status": "succeeded", "seconds": 3.5,
        "log": "/runs/mnist/trials/0000/generation-1/rank-0/log.txt", "error": None, "generations": 2, "host": "node-1",
        "members": [
            {"rank": 0, "role": "chief", "host": "node-1", "log": "/runs/a"},
            {"rank": 1, "role": "worker", "host": None, "log": "/runs/b"},
        ],
        "restarts": [
            {
                "rank": 1, "host": "node-3", "kind": "lost", "cause": "agent on node-3 was lost", "seconds": 1.25,
                "resumed_from_step": 80, "steps_lost": 40, "loss": "preempted",
            }
        ],
        "unsaved": "step 90 was not checkpointed: the disk is full",
        "notices": ["all members had the same batch"],
    }  # fmt: skip
    bad = {
        "id": 1, "params": {"lr": 10.0}, "metrics": {}, "status": "failed", "seconds": 1.0,
        "log": "/runs/mnist/trials/0001/generation-1/rank-0/log.txt",
        "error": {
            "kind": "exception", "summary": "ValueError: units", "traceback": TRACEBACK, "log_tail": ["epoch 1"],
            "rank": 0, "host": "node-2", "loss": None,
        },
        "generations": 1, "host": "node-2", "members": [], "restarts": [], "unsaved": "", "notices": [],
    }  # fmt: skip
    expected = {
        "version": 1, "name": "mnist", "status": "succeeded", "reason": None, "metric": "accuracy", "mode": "max",
        "seconds": 12.0, "directory": "/runs/mnist", "best": good, "trials": [good, bad],
    }  # fmt: skip
    assert to_json(RESULT) == expected
    assert list(to_json(RESULT)) == list(expected)
    assert list(to_json(RESULT)["trials"][0]) == list(good)


def test_a_restart_has_the_same_words_in_python() -> None:
    (restart,) = to_json(RESULT)["trials"][0]["restarts"]
    assert {name: getattr(RESTART, name) for name in restart} == restart


def test_every_field_and_word_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "results-json.md").read_text("utf-8")
    data = to_json(RESULT)
    of_gangs = [*data["trials"][0]["members"][0], *data["trials"][0]["restarts"][0]]
    words = [*data, *data["trials"][1], *data["trials"][1]["error"], *of_gangs, *SweepStatus, *FailureKind, *Loss]
    assert [word for word in words if f"| `{word}` |" not in page] == []


@pytest.mark.parametrize(
    ("value", "written"),
    [(math.inf, None), (math.nan, None), ((1, 2), [1, 2]), (np.float32(0.5), 0.5), (np.int64(3), 3),
     (np.float64("nan"), None), (np.bool_(True), True), (Decimal("1.5"), "1.5"), (True, True),
     ({1: [math.inf]}, {"1": [None]})],
)  # fmt: skip
def test_parameters_that_json_does_not_have(value: Any, written: Any) -> None:
    result = replace(RESULT, trials=(replace(GOOD, params={"p": value}),))
    assert json.loads(to_bytes(result))["trials"][0]["params"] == {"p": written}


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": None},
        {"trials": [{}]},
        {"trials": 1},
        {"trials": ["x"]},
        {"status": "odd"},
        {"name": 3},
    ],
)
def test_what_is_no_result_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        from_json({**to_json(RESULT), **change})


def shown(result: SweepResult, width: int = 80) -> str:
    out = StringIO()
    Console(file=out, width=width).print(summary_table(result))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def test_the_final_table() -> None:
    assert shown(RESULT) == (
        "mnist: succeeded. 2 trials, 1 failed, in 12 s. Best accuracy 0.9000: trial 0.\n"
        "\n"
        "trial  lr   accuracy  status      time\n"
        "    0  0.1    0.9000  succeeded  3.5 s  best\n"
        "    1  10             failed     1.0 s\n"
        "\n"
        "trial 1 failed: ValueError: units\n"
        "    Traceback (most recent call last):\n"
        '      File "train.py", line 3, in train\n'
        "    ValueError: units\n"
        "    log: /runs/mnist/trials/0001/generation-1/rank-0/log.txt\n"
        "\n"
        "warning: trial 0: step 90 was not checkpointed: the disk is full\n"
        "\n"
        "warning: trial 0: all members had the same batch\n"
        "\n"
        "results and logs: /runs/mnist"
    )


def test_trials_with_the_same_cause_are_told_together() -> None:
    many = tuple(replace(BAD, id=TrialId(number)) for number in range(20))
    text = shown(replace(RESULT, status=SweepStatus.FAILED, trials=many))
    assert "trials 0, 1, 2, 3, 4, 5, 6, 7 and 12 more failed: ValueError: units" in text
    assert text.count("Traceback") == 1
    assert "log of trial 0: /runs" in text


def test_many_causes_are_cut() -> None:
    many = tuple(replace(BAD, id=TrialId(n), error=Failure(FailureKind.EXIT, f"cause {n}")) for n in range(30))
    text = shown(replace(RESULT, trials=many, directory=None))
    assert "cause 9" in text
    assert "cause 10" not in text
    assert text.endswith("20 other causes: see the logs of the trials")


def test_without_a_traceback_the_last_lines_of_the_log_are_told() -> None:
    lost = replace(BAD, error=Failure(FailureKind.LOST, "node-7 was lost", "", tuple(f"line {n}" for n in range(20))))
    text = shown(replace(RESULT, trials=(lost,)))
    assert "line 19" in text
    assert "line 11" not in text


def test_nothing_that_a_trial_says_reaches_the_terminal_unescaped() -> None:
    hostile = "\x1b[2J[red]x[/red]\r\x07"
    failure = Failure(FailureKind.EXCEPTION, hostile, hostile, (hostile,))
    trial = replace(BAD, params={hostile: hostile}, error=failure, log=hostile)
    text = shown(replace(RESULT, name=hostile, reason=hostile, trials=(trial, replace(trial, id=TrialId(2)))))
    assert "\x1b" not in text
    assert "\r" not in text
    assert "[red]x[/red]" in text


def test_each_notice_is_shown_once_whatever_number_of_trials_have_it() -> None:
    noticing = [replace(GOOD, id=TrialId(number), unsaved="", notices=("the same batch",)) for number in range(3)]
    said = shown(replace(RESULT, trials=tuple(noticing)))
    assert said.count("warning") == 1
    assert "warning: trial 0: the same batch, and 2 other trials likewise" in said
