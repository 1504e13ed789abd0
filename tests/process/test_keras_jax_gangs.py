"""Gangs of Keras on JAX: they train what one process trains, and resume after a loss."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from tests.process import keras_jax_programs

EQUAL = 1e-5
NEVER = 10**6


@pytest.fixture(scope="module")
def pool() -> Iterator[st.Pool]:
    """Two agents on this machine, with Keras on JAX."""
    with st.pool(st.local(slots=2), preload=["jax"]) as opened:
        yield opened


def run(pool: st.Pool, folder: Path, function: Any, workers: int, /, **params: Any) -> st.RunResult:
    return pool.run(
        function, params, workers=workers,
        env={"KERAS_BACKEND": "jax"}, dir=str(folder / "runs"), progress=False,
    )  # fmt: skip


def weights(folder: Path, size: int, rank: int) -> list[Any]:
    return list(np.load(folder / f"{size}-rank-{rank}.npz").values())


@pytest.fixture(scope="module")
def alone(pool: st.Pool, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, float], list[Any]]:
    """The metrics and the weights of one process that trains on all rows."""
    folder = tmp_path_factory.mktemp("alone")
    metrics = run(pool, folder, keras_jax_programs.train, 1, folder=str(folder), kill_at=NEVER).metrics
    return metrics, weights(folder, 1, 0)


Alone = tuple[dict[str, float], list[Any]]
DATA_PARALLEL = pytest.mark.all(
    case="a program of Keras on JAX with `DataParallel`", covered_by="one with `ModelParallel`, which is killed"
)
OTHER_MESH = pytest.mark.all(case="a mesh of one device in a gang of two", covered_by="a mesh of four devices")
OTHER_RANK = pytest.mark.all(
    case="a killed member of a model that is split over the members", covered_by="the chief of one is killed"
)


def test_a_gang_trains_what_one_process_trains_and_resumes(pool: st.Pool, alone: Alone, tmp_path: Path) -> None:
    expected, expected_weights = alone
    killed = run(pool, tmp_path, keras_jax_programs.train, 2, folder=str(tmp_path), kill_at=6)

    assert [restart.rank for restart in killed.restarts] == [1]
    assert killed.metrics["generation"] == 2
    for name in ("loss", "mae", "val_mae", "evaluated"):
        assert killed.metrics[name] == pytest.approx(expected[name], rel=0, abs=EQUAL), name
    for rank in range(2):
        for member_weight, weight in zip(weights(tmp_path, 2, rank), expected_weights, strict=True):
            np.testing.assert_allclose(member_weight, weight, rtol=0, atol=EQUAL)


@DATA_PARALLEL
@pytest.mark.parametrize(("kind", "part"), [("data", 1.0), ("model", 0.5)])
def test_a_program_for_keras_distribution_runs_as_it_is(
    pool: st.Pool, alone: Alone, tmp_path: Path, kind: str, part: float
) -> None:
    metrics = run(pool, tmp_path, keras_jax_programs.distributed, 2, kind=kind).metrics

    assert (metrics["devices"], metrics["part"]) == (2, part)
    for name in ("loss", "mae"):
        assert metrics[name] == pytest.approx(alone[0][name], rel=0, abs=EQUAL), name


@pytest.mark.parametrize("killed", [0, pytest.param(1, marks=OTHER_RANK)])
def test_a_model_that_is_split_over_the_members_resumes_from_their_checkpoint(
    pool: st.Pool, alone: Alone, tmp_path: Path, killed: int
) -> None:
    result = run(pool, tmp_path, keras_jax_programs.resume_split, 2, folder=str(tmp_path), kill=killed)

    assert [restart.rank for restart in result.restarts] == [killed]
    steps_of_an_epoch = keras_jax_programs.ROWS // keras_jax_programs.BATCH
    assert result.metrics["from"] >= steps_of_an_epoch
    assert (result.metrics["generation"], result.metrics["part"]) == (2, 0.5)
    assert result.metrics["loss"] == pytest.approx(alone[0]["loss"], rel=0, abs=EQUAL)

    # One process reads what two have saved.
    checkpoint = str(tmp_path / "checkpoint")
    restored = run(pool, tmp_path, keras_jax_programs.read_alone, 1, checkpoint=checkpoint).metrics
    assert restored == {"step": result.metrics["from"]}


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ("shape", r"DeviceMesh\(shape=\(1, 4\)\) has 4 devices, and the gang has 2 .*change its shape"),
        pytest.param(
            "devices",
            r"the mesh of keras.distribution.DataParallel has 1 devices, and the gang has 2 ",
            marks=OTHER_MESH,
        ),
    ],
)
def test_a_mesh_that_does_not_fit_the_gang_is_refused(pool: st.Pool, tmp_path: Path, how: str, problem: str) -> None:
    with pytest.raises(st.RunFailedError, match=problem):
        run(pool, tmp_path, keras_jax_programs.misfit, 2, how=how)


ALONE = """
import sys
import sparktrain as st
from tests.process import keras_jax_programs

folder = sys.argv[1]
with st.testing.local_context(size=2, backend="jax", mirrored=True) as ctx:
    keras_jax_programs.train(folder, 10**6, ctx)
    assert ctx.allgather(1.0).tolist() == [1.0, 1.0]
with st.testing.local_context(size=2, backend="jax") as ctx:
    try:
        keras_jax_programs.train(folder, 10**6, ctx)
    except st.GangNeededError as error:
        print(error, "tensorflow" in sys.modules)
"""


@pytest.mark.all(case="a test of a user for Keras on JAX", covered_by="`training/test_lone_member`: on TensorFlow")
def test_a_test_of_a_user_needs_no_other_member_where_these_mirror_it(tmp_path: Path) -> None:
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    command = [sys.executable, "-c", ALONE, str(tmp_path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert "needs all 2 members of the gang" in ended.stdout
    assert ended.stdout.endswith("False\n")
    assert (tmp_path / "2-rank-0.npz").exists()


def test_an_optimizer_averages_by_hand_and_what_cannot_average_is_refused(pool: st.Pool, tmp_path: Path) -> None:
    metrics = run(pool, tmp_path, keras_jax_programs.by_hand, 2).metrics
    assert metrics == {"refusals": len(keras_jax_programs.REFUSALS)}
