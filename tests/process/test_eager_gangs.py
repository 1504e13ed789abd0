"""Gangs of JAX and PyTorch on the local engine: the ring of `ctx`, what a loss does, and what only JAX has."""

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from tests.process import jax_programs
from tests.support import eager_gangs

EQUAL = 1e-6
"""How far a float may be from that of one process: the members' sums have another order."""


PROGRAMS = {"jax": "tests.process.jax_programs", "torch": "tests.torch.ddp_programs"}
"""By backend; imported where a test runs them."""
FOUR_READERS = pytest.param(
    4, marks=pytest.mark.all(case="four members read arrays that two have saved", covered_by="one process reads them")
)
of_jax = pytest.mark.parametrize("backend", ["jax"], indirect=True, scope="module")


@pytest.fixture(scope="module", params=["jax", pytest.param("torch", marks=pytest.mark.torch)])
def backend(request: pytest.FixtureRequest) -> Any:
    """What connects the gang."""
    return request.param


@pytest.fixture(scope="module")
def pool(backend: str) -> Iterator[st.Pool]:
    """Two agents on this machine."""
    with st.pool(st.local(slots=2), preload=[backend]) as opened:
        yield opened


@pytest.fixture
def run(pool: st.Pool, backend: Any, tmp_path: Path) -> Any:
    """Runs the function of this name in a gang of two."""

    def result(name: str, **params: Any) -> st.RunResult:
        programs = import_module(PROGRAMS[backend])
        of_both = getattr(eager_gangs, name, None)
        function = partial(of_both, programs.GangArrays()) if of_both else getattr(programs, name)
        return pool.run(function, params, workers=2, backend=backend, dir=str(tmp_path / "runs"), progress=False)

    return result


@of_jax
def test_a_program_for_several_processes_trains_what_one_process_trains(run: Any, tmp_path: Path) -> None:
    alone = jax_programs.train_alone()
    metrics = run("train", folder=str(tmp_path)).metrics

    assert (metrics["size"], metrics["devices"]) == (2, 2)
    assert metrics["loss"] == pytest.approx(alone["loss"], rel=0, abs=EQUAL)
    for rank in range(2):
        weights = np.load(tmp_path / f"rank-{rank}.npz")
        for name in ("first", "second"):
            np.testing.assert_allclose(weights[name], alone[name], rtol=0, atol=EQUAL)


@pytest.mark.parametrize(
    ("options", "status"),
    [
        pytest.param({"stopper": st.Threshold(upper=7.5)}, "pruned", id="rule"),
        pytest.param({"budget": "4s"}, "succeeded", id="whole sweep"),
    ],
)
def test_the_members_of_a_loop_stop_after_the_same_step(
    pool: st.Pool, backend: str, tmp_path: Path, options: dict[str, Any], status: str
) -> None:
    programs = import_module(PROGRAMS[backend])
    loop = partial(eager_gangs.stop_together, programs.GangArrays())
    result = pool.sweep(
        loop, {"folder": [str(tmp_path)]}, metric="loss", mode="min", workers_per_trial=2, backend=backend,
        dir=str(tmp_path / "runs"), progress=False, **options,
    )  # fmt: skip
    assert [trial.status for trial in result.trials] == [status], result.trials[0].error
    [step, other_step] = [int((tmp_path / f"stopped-{rank}").read_text()) for rank in range(2)]
    assert 8 <= step == other_step < 200


@pytest.mark.parametrize(("how", "victim"), [("program", 0), ("ctx", 1)])
def test_a_killed_member_costs_a_restart(run: Any, how: str, victim: int) -> None:
    result = run("lose_a_member", victim=victim, how=how)

    assert result.metrics == {"total": 40.0, "generation": 2.0, "from": 6.0}
    [restart] = result.restarts
    assert restart.rank == victim
    assert "SIGKILL" in restart.cause


@of_jax
def test_steps_that_no_member_has_reported_count_as_lost(run: Any) -> None:
    result = run("lose_quick_steps")
    [restart] = result.restarts
    # Rank 0 has left the collective of step 30 before or after its own end.
    assert (restart.resumed_from_step, restart.steps_lost) in ((None, 29), (None, 30))
    assert "steps repeated" in str(result)


def test_the_mistake_of_a_member_fails_the_run_and_the_loss_of_the_other_does_not(run: Any) -> None:
    with pytest.raises(st.RunFailedError, match="ValueError: rank 1 has no data") as caught:
        run("raise_in_a_member")
    assert caught.value.rank == 1


def test_members_that_call_different_collectives_are_named_with_their_calls(run: Any) -> None:
    with pytest.raises(st.RunFailedError, match=r"rank 0 calls allreduce .* rank 1 calls broadcast"):
        run("call_others")


def test_the_collectives_carry_each_kind_of_number(run: Any) -> None:
    assert run("carry").metrics == {"ranks": 2}


@pytest.mark.parametrize("readers", [1, FOUR_READERS])
@of_jax
def test_arrays_in_parts_are_saved_by_all_members_and_read_by_any_number(
    pool: st.Pool, tmp_path: Path, readers: int
) -> None:
    place: Any = {"backend": "jax", "dir": str(tmp_path / "runs"), "progress": False}
    swept = pool.sweep(
        jax_programs.train_split, {"folder": [str(tmp_path)], "kill_at": [8]}, metric="loss", mode="min",
        workers_per_trial=2, name="split", **place,
    )  # fmt: skip
    [trial] = swept.trials
    assert [restart.rank for restart in trial.restarts] == [1]
    assert (trial.metrics["from"], trial.metrics["part"]) == (6, 0.5)
    alone = jax_programs.train_alone()
    assert trial.metrics["loss"] == pytest.approx(alone["loss"], rel=0, abs=EQUAL)
    trained = np.load(tmp_path / "size-2.npz")
    for name in ("first", "second"):
        np.testing.assert_allclose(trained[name], alone[name], rtol=0, atol=EQUAL)

    spark = st.local(slots=readers)
    refitted = st.refit(swept, {"kill_at": 0}, workers=readers, name="refitted", spark=spark, **place)
    assert (refitted.metrics["from"], refitted.metrics["part"]) == (12, 1 / readers)
    read = np.load(tmp_path / f"size-{readers}.npz")
    for name in ("first", "second"):
        np.testing.assert_array_equal(read[name], trained[name])
