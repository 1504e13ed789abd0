"""Memory checkpoints of loops of PyTorch: what a loss costs without a checkpoint in the store."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from tests.torch import looping

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def pool() -> Iterator[st.Pool]:
    """Two warm agents on this machine."""
    with st.pool(st.local(slots=2), preload=["torch"]) as opened:
        yield opened


@pytest.fixture(scope="module")
def weights(pool: st.Pool, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Those of a gang that loses none."""
    folder = tmp_path_factory.mktemp("whole")
    result = run(pool, folder)
    assert result.metrics["start"] == 0
    assert not result.restarts
    return np.load(folder / "weights-0.npy")


def run(pool: st.Pool, folder: Path, **faults: Any) -> st.RunResult:
    return pool.run(
        looping.learn, {"folder": str(folder), **faults}, workers=2, dir=str(folder / "runs"), name="run", seed=1,
        hang_timeout="3s", progress=False,
    )  # fmt: skip


@pytest.mark.parametrize(("rank", "victim"), [(0, "member"), (1, "member"), (0, "agent")])
def test_a_loss_costs_a_step_or_two_and_no_read_of_the_store(
    pool: st.Pool, tmp_path: Path, weights: Any, rank: int, victim: str
) -> None:
    result = run(pool, tmp_path, kill_at=14, rank=rank, victim=victim)
    [restart] = result.restarts
    # The members of a host take turns: a killed agent may have held the newest copy, and another the one before.
    newest = 12 if victim == "member" else 11
    assert restart.resumed_from_step in range(newest, 15)
    assert result.metrics["start"] == restart.resumed_from_step
    assert not list((tmp_path / "runs").rglob("manifest*"))
    for member in range(2):
        np.testing.assert_allclose(np.load(tmp_path / f"weights-{member}.npy"), weights, rtol=0, atol=1e-6)


def test_a_member_in_an_endless_loop_is_named_and_replaced(pool: st.Pool, tmp_path: Path, weights: Any) -> None:
    result = run(pool, tmp_path, hang_at=20)
    [restart] = result.restarts
    assert restart.kind == "hang"
    assert "has finished no training step for" in restart.cause
    np.testing.assert_allclose(np.load(tmp_path / "weights-0.npy"), weights, rtol=0, atol=1e-6)
