"""Gangs of JAX on the local engine: programs for several processes, the ring of `ctx`, and what a loss does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from tests.process import jax_programs

EQUAL = 1e-6
"""How far a float may be from that of one process: the members' sums have another order."""


AGENTS = 2, "jax"
"""Two agents on this machine."""


def run(pool: st.Pool, folder: Path, function: Any, /, **params: Any) -> st.RunResult:
    return pool.run(function, params, workers=2, backend="jax", dir=str(folder / "runs"), progress=False)


def test_a_program_for_several_processes_trains_what_one_process_trains(pool: st.Pool, tmp_path: Path) -> None:
    alone = jax_programs.train_alone()
    metrics = run(pool, tmp_path, jax_programs.train, folder=str(tmp_path)).metrics

    assert (metrics["size"], metrics["devices"]) == (2, 2)
    assert metrics["loss"] == pytest.approx(alone["loss"], rel=0, abs=EQUAL)
    for rank in range(2):
        weights = np.load(tmp_path / f"rank-{rank}.npz")
        for name in ("first", "second"):
            np.testing.assert_allclose(weights[name], alone[name], rtol=0, atol=EQUAL)


def test_the_members_of_a_loop_stop_after_the_same_step(pool: st.Pool, tmp_path: Path) -> None:
    result = pool.sweep(
        jax_programs.stop_together, {"folder": [str(tmp_path)]}, metric="loss", mode="min", workers_per_trial=2,
        backend="jax", stopper=st.Threshold(upper=7.5), dir=str(tmp_path / "runs"), progress=False,
    )  # fmt: skip
    assert [trial.status for trial in result.trials] == ["pruned"], result.trials[0].error
    [step, other_step] = [int((tmp_path / f"stopped-{rank}").read_text()) for rank in range(2)]
    assert 8 <= step == other_step < 200


@pytest.mark.parametrize(("how", "victim"), [("program", 0), ("ctx", 1)])
def test_a_killed_member_costs_a_restart(pool: st.Pool, tmp_path: Path, how: str, victim: int) -> None:
    result = run(pool, tmp_path, jax_programs.lose_a_member, victim=victim, how=how)

    assert result.metrics == {"total": 40.0, "generation": 2.0, "from": 6.0}
    [restart] = result.restarts
    assert restart.rank == victim
    assert "SIGKILL" in restart.cause


def test_steps_that_no_member_has_reported_count_as_lost(pool: st.Pool, tmp_path: Path) -> None:
    result = run(pool, tmp_path, jax_programs.lose_quick_steps)
    [restart] = result.restarts
    # Rank 0 has left the collective of step 30 before or after its own end.
    assert (restart.resumed_from_step, restart.steps_lost) in ((None, 29), (None, 30))
    assert "steps repeated" in str(result)


def test_the_mistake_of_a_member_fails_the_run_and_the_loss_of_the_other_does_not(
    pool: st.Pool, tmp_path: Path
) -> None:
    with pytest.raises(st.RunFailedError, match="ValueError: rank 1 has no data") as caught:
        run(pool, tmp_path, jax_programs.raise_in_a_member)
    assert caught.value.rank == 1


def test_members_that_call_different_collectives_are_named_with_their_calls(pool: st.Pool, tmp_path: Path) -> None:
    with pytest.raises(st.RunFailedError, match=r"rank 0 calls allreduce .* rank 1 calls broadcast"):
        run(pool, tmp_path, jax_programs.call_others)


def test_the_collectives_carry_each_kind_of_number(pool: st.Pool, tmp_path: Path) -> None:
    assert run(pool, tmp_path, jax_programs.carry).metrics == {"ranks": 2}
