"""Gangs of Keras on JAX: they train what one process trains, and resume after a loss."""

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
        function, {"folder": str(folder), **params}, workers=workers,
        env={"KERAS_BACKEND": "jax"}, dir=str(folder / "runs"), progress=False,
    )  # fmt: skip


def weights(folder: Path, size: int, rank: int) -> list[Any]:
    return list(np.load(folder / f"{size}-rank-{rank}.npz").values())


def test_a_gang_trains_what_one_process_trains_and_resumes(pool: st.Pool, tmp_path: Path) -> None:
    alone = run(pool, tmp_path, keras_jax_programs.train, 1, kill_at=NEVER).metrics
    killed = run(pool, tmp_path, keras_jax_programs.train, 2, kill_at=6)

    assert [restart.rank for restart in killed.restarts] == [1]
    assert killed.metrics["generation"] == 2
    for name in ("loss", "mae", "val_mae", "evaluated"):
        assert killed.metrics[name] == pytest.approx(alone[name], rel=0, abs=EQUAL), name
    for rank in range(2):
        for mine, theirs in zip(weights(tmp_path, 2, rank), weights(tmp_path, 1, 0), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=EQUAL)
