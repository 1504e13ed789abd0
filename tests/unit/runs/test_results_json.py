"""`results.json`."""

import json
import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.base.ids import TrialId
from sparktrain.config.gang_spec import Role
from sparktrain.errors import SpecError
from sparktrain.runs.results_json import from_json, to_bytes, to_json
from sparktrain.runs.sweep_outcome import SweepOutcome, SweepStatus
from sparktrain.runs.trial_result import MemberResult, TrialResult
from sparktrain.state.outcome import Failure, FailureKind, Loss, Restart
from sparktrain.state.trial import Exploit, TrialStatus
from tests.unit.runs.outcomes import GOOD, RESTART, RESULT, TRACEBACK

texts = st.text(max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers()
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
ranks, hosts, kinds = st.integers(0, 99), st.none() | texts, st.sampled_from(FailureKind)
failures = st.builds(Failure, kinds, texts, texts, st.lists(texts, max_size=3).map(tuple), st.none() | ranks, hosts)
members = st.builds(MemberResult, rank=ranks, role=st.sampled_from(Role), host=hosts, log=texts, exported=texts)
steps = st.none() | st.integers(0, 10**9)
restarts = st.builds(Restart, ranks, hosts, kinds, texts, st.floats(0, 1e9), steps, steps)
trials = st.builds(
    TrialResult,
    id=st.integers(0, 9999).map(TrialId),
    params=st.dictionaries(texts, json_values, max_size=3),
    status=st.sampled_from([status for status in TrialStatus if status.final]),
    metrics=st.dictionaries(texts, st.floats(), max_size=3),
    extra=st.dictionaries(texts, json_values, max_size=3),
    seconds=st.floats(0, 1e9),
    error=st.none() | failures,
    generations=st.integers(0, 99),
    members=st.lists(members, max_size=2).map(tuple),
    restarts=st.lists(restarts, max_size=2).map(tuple),
    exploits=st.lists(
        st.builds(Exploit, ranks, ranks, ranks, st.dictionaries(texts, json_values, max_size=3)), max_size=2
    ).map(tuple),
    unsaved=texts,
    pruned=texts,
    notices=st.lists(texts, max_size=2).map(tuple),
)
sweeps = st.builds(
    SweepOutcome,
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
def test_what_is_written_is_strict_json_and_reads_back(result: SweepOutcome) -> None:
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
        "id": 0, "params": {"lr": 0.1}, "metrics": {"accuracy": 0.9}, "extra": {"note": "warm"},
        "status": "succeeded", "seconds": 3.5,
        "log": "/runs/mnist/trials/0000/generation-1/rank-0/log.txt", "error": None, "generations": 2, "host": "node-1",
        "members": [
            {
                "rank": 0, "role": "chief", "host": "node-1",
                "log": "/runs/mnist/trials/0000/generation-1/rank-0/log.txt",
            },
            {"rank": 1, "role": "worker", "host": None, "log": "/runs/b"},
        ],
        "restarts": [
            {
                "rank": 1, "host": "node-3", "kind": "lost", "cause": "agent on node-3 was lost", "seconds": 1.25,
                "resumed_from_step": 80, "steps_lost": 40, "loss": "preempted", "alone": False, "paused": False,
                "healed": False, "drained": False, "members": None, "full_size": None,
                "reached_step": None,
            }
        ],
        "unsaved": "step 90 was not checkpointed: the disk is full",
        "pruned": "",
        "notices": ["all members had the same batch"],
    }  # fmt: skip
    bad = {
        "id": 1, "params": {"lr": 10.0}, "metrics": {}, "extra": {}, "status": "failed", "seconds": 1.0,
        "log": "/runs/mnist/trials/0001/generation-1/rank-0/log.txt",
        "error": {
            "kind": "exception", "summary": "ValueError: units", "traceback": TRACEBACK, "log_tail": ["epoch 1"],
            "rank": 0, "host": "node-2", "loss": None,
        },
        "generations": 1, "host": "node-2",
        "members": [
            {
                "rank": 0, "role": "chief", "host": "node-2",
                "log": "/runs/mnist/trials/0001/generation-1/rank-0/log.txt",
            },
        ],
        "restarts": [], "unsaved": "", "pruned": "", "notices": [],
    }  # fmt: skip
    expected = {
        "version": 1, "name": "mnist", "status": "succeeded", "reason": None, "metric": "accuracy", "mode": "max",
        "seconds": 12.0, "wall_seconds": 12.5, "directory": "/runs/mnist", "best": good, "trials": [good, bad],
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
