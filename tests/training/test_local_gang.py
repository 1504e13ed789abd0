"""Gangs of TensorFlow on the local engine: nursery, agents and zygotes as users have them, without Spark."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from tests.training import local_gang

EQUAL = 1e-6
"""How far a float may be from that of one process: the members' sums have another order."""


@pytest.fixture(scope="module")
def alone() -> tuple[Any, list[float]]:
    """The weights, and the loss of each epoch, of one process on all rows."""
    return local_gang.train_alone()


@pytest.fixture(scope="module")
def pool(gang_pool: st.Pool) -> st.Pool:
    return gang_pool


@pytest.mark.parametrize("backend", ["tensorflow", "horovod"])
def test_a_local_gang_trains_what_one_process_trains(
    pool: st.Pool, tmp_path: Path, backend: str, alone: tuple[Any, list[float]]
) -> None:
    weights, losses = alone
    result = pool.run(
        local_gang.train, {"folder": str(tmp_path)}, workers=2, backend=backend, dir=str(tmp_path / "runs"),
        progress=False,
    )  # fmt: skip

    assert losses[-1] < 0.8 * losses[0], "a model that does not learn compares nothing"
    assert result.metrics["size"] == 2
    assert result.metrics["loss"] == pytest.approx(losses[-1], rel=0, abs=EQUAL)
    assert result.restarts == ()
    for rank in range(2):
        member = np.load(tmp_path / f"rank-{rank}.npz")
        np.testing.assert_allclose(member["weights"], weights, rtol=0, atol=EQUAL)
        np.testing.assert_allclose(member["losses"], losses, rtol=0, atol=EQUAL)


@pytest.mark.all(
    case="a program of Horovod on the local engine",
    covered_by="`training/test_horovod_programs`: such programs in forked members; `training/test_horovod_elastic`",
)
def test_a_program_of_horovod_trains_what_one_process_trains(
    pool: st.Pool, tmp_path: Path, alone: tuple[Any, list[float]]
) -> None:
    weights, losses = alone
    result = pool.run(
        local_gang.train_by_horovod, {"folder": str(tmp_path)}, workers=2, backend="horovod",
        dir=str(tmp_path / "runs"), progress=False,
    )  # fmt: skip

    assert result.metrics["size"] == 2
    for rank in range(2):
        member = np.load(tmp_path / f"rank-{rank}.npz")
        np.testing.assert_allclose(member["weights"], weights, rtol=0, atol=EQUAL)
        np.testing.assert_allclose(member["losses"], losses, rtol=0, atol=EQUAL)


@pytest.mark.all(
    case="the best trial of a Keras sweep, trained on in a ring of Horovod",
    covered_by="`process/test_refit`: in a gang without a ring; `training/test_resume`: a ring that resumes",
)
def test_a_gang_of_horovod_trains_the_best_trial_of_a_sweep_on(pool: st.Pool, tmp_path: Path) -> None:
    places: dict[str, Any] = {"dir": str(tmp_path / "runs"), "progress": False}
    cases = {"lr": [0.001, 0.1], "epochs": [2], "folder": [str(tmp_path)]}
    swept = pool.sweep(local_gang.refine, cases, metric="loss", mode="min", name="swept", **places)
    assert swept.best.params["lr"] == 0.1
    left = np.load(tmp_path / "1-0.1-0.npz")["ended"]

    made = st.refit(
        swept, {"epochs": 6}, workers=2, backend="horovod", spark=st.local(slots=2), name="final", progress=False,
        preload=["tensorflow", "keras", "horovod.tensorflow"],
    )  # fmt: skip

    assert made.metrics["size"] == 2
    assert made.metrics["epochs"] == 6, "the History of fit has those of the sweep too"
    assert sorted({*made.trials[0].history["step"]}) == [2, 3, 4, 5]
    assert made.metrics["loss"] < swept.best.metrics["loss"]
    for rank in range(2):
        member = np.load(tmp_path / f"2-0.1-{rank}.npz")
        assert (member["epoch"], member["step"]) == (2, 2 * local_gang.ROWS // local_gang.BATCH)
        np.testing.assert_array_equal(member["weights"], left)
        assert not np.array_equal(member["ended"], left)
