"""Gangs without collectives on the slots of this machine."""

import json
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.base.clock import pause

TWO_SLOTS = st.local(slots=2)
QUICK: dict[str, Any] = {"backend": "none", "preload": []}
"""By default agents import everything that one of the tests uses."""


def test_a_member_that_raises_fails_the_run_and_is_named(runs: Path) -> None:
    def train(ctx: Any) -> float:
        if ctx.rank == 1:
            raise ValueError("rank 1 has no data")
        while not ctx.should_stop():  # the gang ends this member
            pause(0.02)
        return 1.0

    with pytest.raises(st.RunFailedError, match="ValueError: rank 1 has no data") as caught:
        st.run(train, workers=2, dir=str(runs), name="raises", spark=TWO_SLOTS, **QUICK)
    assert caught.value.rank == 1
    assert "raise ValueError" in caught.value.traceback
    assert not isinstance(caught.value, st.InfraError)
    assert json.loads((runs / "raises" / "results.json").read_text())["status"] == "failed"


def test_gangs_of_a_sweep_take_turns_on_two_slots(runs: Path) -> None:
    def train(x: int, ctx: Any) -> dict[str, float]:
        return {"y": 10 * x + ctx.rank, "size": ctx.size}

    result = st.sweep(
        train,
        {"x": [1, 2, 3]},
        metric="y",
        mode="max",
        workers_per_trial=2,
        dir=str(runs),
        name="gangs",
        spark=TWO_SLOTS,
        **QUICK,
    )
    assert [trial.metrics for trial in result.trials] == [{"y": 10.0 * x, "size": 2.0} for x in (1, 2, 3)]
    assert [len(trial.members) for trial in result.trials] == [2, 2, 2]


def test_a_pool_runs_gangs_and_refuses_larger_ones_than_itself(runs: Path) -> None:
    def train(ctx: Any) -> int:
        return int(ctx.size)

    with st.pool(TWO_SLOTS, preload=[]) as pool:
        with pytest.raises(st.ResourceError, match="the gang has 3 members and the pool has 2 agents"):
            pool.run(train, workers=3, dir=str(runs), name="large", **QUICK)
        sizes = [
            pool.run(train, workers=size, dir=str(runs), name=f"gang-{size}", **QUICK).metrics["result"]
            for size in (2, 1)
        ]
    assert sizes == [2.0, 1.0]
