"""A gang that loses one of its processes resumes from its last acknowledged checkpoint, and leaves no process."""

import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from pyspark.sql import SparkSession

import sparktrain as st
from sparktrain.base import process_tree
from tests.support import drill
from tests.support.drill import EVERY, STEPS, VICTIMS, Strike
from tests.support.processes import Sighted, descendants

SECOND_RANK = pytest.mark.all(
    case="the second rank of each victim, and a killed agent and executor",
    covered_by="a member and a zygote; `faults/test_failed_job`: an agent; `spark/test_run`: an executor",
)

TWO_SLOTS = st.local(slots=2)
IN_FLIGHT = 2
"""Checkpoint intervals that an asynchronous checkpoint may lose."""


def run(
    runs: Path, strikes: list[Strike], *, workers: int = 2, backend: str = "none", **options: Any
) -> tuple[st.RunResult, Path]:
    """Run a drill with these kills; return its result and the folder of its notes."""
    folder = runs / "notes"
    folder.mkdir(parents=True)
    params = {
        "folder": str(folder),
        "strikes": [msgspec.to_builtins(each) for each in strikes],
        "collective": backend == "torch",
    }
    options = {"max_retries": len(strikes), "preload": ["numpy"], "progress": False, "spark": TWO_SLOTS, **options}
    result = st.run(drill.train, params, workers=workers, backend=backend, dir=str(runs), name="drill", **options)
    return result, folder


def check(result: st.RunResult, folder: Path, strikes: list[Strike]) -> None:
    """The result is exact, and each generation resumed from the last acknowledged checkpoint of the one before."""
    assert result.metrics == {"value": drill.expected()}
    restored, steps = drill.notes(folder, "from"), drill.notes(folder, "step")
    assert len(result.restarts) == len(strikes), [each.cause for each in result.restarts]
    for generation in range(2, len(strikes) + 2):
        [at] = {start for rank in range(len(result.members)) for start in restored[generation, rank]}
        assert at % EVERY == 0
        assert at == (result.restarts[generation - 2].resumed_from_step or 0)
        done = max(steps.get((generation - 1, 0), [at]))
        assert done - at <= IN_FLIGHT * EVERY
    last = len(strikes) + 1
    assert max(steps.get((last, 0), restored[last, 0])) == STEPS


KILLED_JAX = pytest.mark.all(
    case="a killed member of JAX",
    covered_by="a killed member of arrays; `process/test_eager_gangs`: a killed member of JAX",
)
OFTEN = {("member", 0), ("zygote", 1)}
"""Kills of `make test`; `make test-all` kills each victim of both ranks."""
KILLS = [
    *(
        pytest.param("none", victim, rank, marks=() if (victim, rank) in OFTEN else SECOND_RANK)
        for victim in VICTIMS
        for rank in (0, 1)
    ),
    pytest.param("jax", "member", 0, marks=KILLED_JAX),  # JAX itself ends the other member
    pytest.param("jax", "zygote", 1, marks=SECOND_RANK),
    *(
        pytest.param("torch", *victim, marks=pytest.mark.torch)
        for victim in (("member", 0), ("zygote", 1), ("agent", 0))
    ),
]


@pytest.mark.parametrize(("backend", "victim", "rank"), KILLS)
def test_a_killed_process_costs_a_restart(
    request: pytest.FixtureRequest, runs: Path, backend: str, victim: str, rank: int
) -> None:
    engine = request.getfixturevalue("spark") if victim == "executor" else TWO_SLOTS
    below = {each.pid for each in descendants(os.getpid())}
    strikes = [Strike(1, 17, rank, victim)]
    result, folder = run(runs, strikes, backend=backend, spark=engine)
    check(result, folder, strikes)
    assert result.restarts[0].rank == rank or victim == "executor"  # one executor may have both members
    nursery = process_tree.children()  # it stays, and its agents do not
    left = [each for each in descendants(os.getpid(), "-m sparktrain.") if each.pid not in below | nursery]
    Sighted(each.pid for each in left if psutil.pid_exists(each.pid)).wait_gone(10.0)


@pytest.mark.torch
@pytest.mark.parametrize("rank", [0, 1])
def test_a_member_of_a_gang_of_pytorch_that_crashes_is_replaced(runs: Path, rank: int) -> None:
    strikes = [Strike(1, 12, rank, "member", signal.SIGSEGV)]
    result, folder = run(runs, strikes, backend="torch")
    check(result, folder, strikes)
    [restart] = result.restarts
    assert restart.rank == rank
    assert "SIGSEGV" in restart.cause


@pytest.mark.all(case="several random kills", covered_by="one kill of each victim")
def test_a_gang_recovers_from_several_random_kills(spark: SparkSession, runs: Path) -> None:
    strikes = drill.plan(seed=11, kills=4, size=2)
    result, folder = run(runs, strikes, spark=spark)
    check(result, folder, strikes)


STOPPED = pytest.mark.all(
    case="a member of a gang that is stopped by a signal", covered_by="`process/test_member_sessions`: one member alone"
)


@pytest.mark.parametrize(
    "backend",
    [*(pytest.param(name, marks=STOPPED) for name in ("none", "jax")), pytest.param("torch", marks=pytest.mark.torch)],
)
def test_a_member_that_is_stopped_by_a_signal_is_replaced(runs: Path, backend: str) -> None:
    strikes = [Strike(1, 12, 1, "member", signal.SIGSTOP)]
    result, folder = run(runs, strikes, backend=backend)
    check(result, folder, strikes)
    [restart] = result.restarts
    assert (restart.kind, restart.rank) == ("lost", 1)


@pytest.mark.all(case="a gang of a single member", covered_by="gangs of two members")
def test_a_gang_of_one_member_recovers_too(runs: Path) -> None:
    strikes = [Strike(1, 8, 0, "member"), Strike(2, 30, 0, "agent")]
    result, folder = run(runs, strikes, workers=1)
    check(result, folder, strikes)


@pytest.mark.all(case="too many kills", covered_by="`unit/state/test_restart_budget`")
def test_too_many_kills_end_the_run_with_the_list_of_causes(runs: Path) -> None:
    strikes = [Strike(1, 3, 0, "member"), Strike(2, 4, 1, "member"), Strike(3, 5, 0, "member")]
    with pytest.raises(st.RunFailedError, match="SIGKILL") as caught:
        run(runs, strikes, max_retries=2)
    assert len(caught.value.restarts) == 2
    assert "rank 0" in caught.value.restarts[0]
    assert "rank 1" in caught.value.restarts[1]
