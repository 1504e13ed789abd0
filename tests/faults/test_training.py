"""A killed training ends with the weights of an undisturbed one, and a member that hangs is replaced."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from tests.faults.learning import BATCH, EPOCHS, EXAMPLES, learn

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def pool() -> Iterator[st.Pool]:
    """Two warm agents on this machine."""
    with st.pool(st.local(slots=2), preload=["tensorflow", "keras", "horovod.tensorflow"]) as made:
        yield made


def trained(pool: st.Pool, folder: Path, workers: int, backend: str, **faults: Any) -> tuple[st.RunResult, list[Any]]:
    """Train; return the result and the weights of the chief."""
    notes = folder / "notes"
    notes.mkdir(parents=True)
    params = {"folder": str(notes), "kill_at": None, "hang_at": None, **faults}
    result = pool.run(
        learn, params, workers=workers, backend=backend, dir=str(folder), name="run", seed=1, progress=False,
        hang_timeout="3s",
    )  # fmt: skip
    with np.load(notes / "weights.npz") as weights:
        return result, [weights[name] for name in weights.files]


def examples_of(folder: Path, workers: int) -> list[list[int]]:
    """The examples of each epoch: those of the newest generation that made the step."""
    steps: dict[tuple[int, int], tuple[int, str]] = {}
    for path in sorted((folder / "notes").glob("*.json")):
        generation, rank, step = map(int, path.stem.split("-"))
        steps[step, rank] = max(steps.get((step, rank), (0, "")), (generation, path.read_text()))
    epochs: list[list[int]] = [[] for _ in range(EPOCHS)]
    per_epoch = EXAMPLES // (BATCH * workers)
    for (step, _), (_, text) in sorted(steps.items()):
        epochs[(step - 1) // per_epoch] += map(int, text.strip("[]").split(","))
    return epochs


@pytest.mark.parametrize(
    ("workers", "backend"),
    [
        pytest.param(1, "none", marks=pytest.mark.all),
        pytest.param(2, "tensorflow", marks=pytest.mark.all),
        (2, "horovod"),
    ],
)
def test_a_killed_training_ends_with_the_same_weights(
    pool: st.Pool, tmp_path: Path, workers: int, backend: str
) -> None:
    whole, weights = trained(pool, tmp_path / "whole", workers, backend)
    killed, resumed = trained(pool, tmp_path / "killed", workers, backend, kill_at=14)
    assert not whole.restarts
    [restart] = killed.restarts
    assert restart.resumed_from_step in (8, 12)
    for one, other in zip(weights, resumed, strict=True):
        if workers == 1:
            np.testing.assert_array_equal(one, other)
        else:
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
    for folder in ("whole", "killed"):
        assert [sorted(epoch) for epoch in examples_of(tmp_path / folder, workers)] == [list(range(EXAMPLES))] * EPOCHS


def test_a_member_without_progress_is_named_and_replaced(pool: st.Pool, tmp_path: Path) -> None:
    result, _ = trained(pool, tmp_path, 2, "horovod", hang_at=30)
    [restart] = result.restarts
    assert restart.kind == "hang"
    assert "has finished no training step for" in restart.cause
