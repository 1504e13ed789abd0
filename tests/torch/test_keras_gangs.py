"""Gangs of Keras on PyTorch, on the local engine: equal to one process, also after the loss of a member."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from sparktrain.usercode.preload import pool_modules
from tests.torch import keras_programs

pytestmark = pytest.mark.torch

EQUAL = 1e-5
"""How far a weight may be from that of one process."""
KILLED_AT = 2 * keras_programs.STEPS + 2
"""Steps: in the middle of the third epoch."""
ROOT = Path(__file__).parents[2]
ENV = {"KERAS_BACKEND": "torch"}
ALONE = """
from tests.torch import keras_programs
import sys, numpy as np
weights, metrics = keras_programs.train_alone()
np.savez(sys.argv[1], weights=weights, **metrics)
"""


@pytest.fixture(scope="module")
def backend(request: pytest.FixtureRequest) -> str:
    """That of Keras."""
    return getattr(request, "param", "torch")


@pytest.fixture(scope="module")
def pool(backend: str) -> Iterator[st.Pool]:
    """Two agents on this machine."""
    with st.pool(st.local(slots=2), preload=pool_modules(backend)) as opened:
        yield opened


@pytest.fixture(scope="module")
def alone(backend: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What one process trains, in a process of its own: Keras here runs on TensorFlow."""
    file = tmp_path_factory.mktemp("alone") / "alone.npz"
    env = os.environ | {"KERAS_BACKEND": backend}
    subprocess.run([sys.executable, "-c", ALONE, str(file)], env=env, cwd=ROOT, check=True, timeout=90)
    return np.load(file)


@pytest.mark.parametrize(
    ("kill_at", "compression", "far"), [(0, "none", EQUAL), (KILLED_AT, "none", EQUAL), (0, "bf16", 0.01)]
)
def test_a_gang_trains_what_one_process_trains(
    pool: st.Pool, tmp_path: Path, alone: Any, kill_at: int, compression: str, far: float
) -> None:
    params = {"folder": str(tmp_path), "kill_at": kill_at, "compression": compression}
    result = pool.run(
        keras_programs.train, params, workers=2, dir=str(tmp_path / "runs"), progress=False, env=ENV, healing=False
    )

    assert (result.metrics["generation"] > 1) == bool(kill_at)
    assert result.metrics["loss"] == pytest.approx(float(alone["loss"]), rel=0, abs=far)
    assert result.metrics["mae"] == pytest.approx(float(alone["mae"]), rel=0, abs=far)
    members = [np.load(tmp_path / f"rank-{rank}.npy") for rank in range(2)]
    np.testing.assert_array_equal(*members)
    np.testing.assert_allclose(members[0], alone["weights"], rtol=0, atol=far)
    assert (np.abs(members[0] - alone["weights"]).max() > EQUAL) == (compression != "none")
    assert result.history()["step"].tolist() == list(range(keras_programs.EPOCHS))


@pytest.mark.parametrize("backend", ["torch", "jax"], indirect=True, scope="module")
def test_a_loss_resumes_from_shared_memory_without_a_checkpoint_in_the_store(
    pool: st.Pool, backend: str, tmp_path: Path, alone: Any
) -> None:
    params = {"folder": str(tmp_path), "kill_at": KILLED_AT, "compression": "none", "memory": "0.001s"}
    result = pool.run(
        keras_programs.train,
        params,
        workers=2,
        dir=str(tmp_path / "runs"),
        progress=False,
        healing=False,
        env={"KERAS_BACKEND": backend},
    )

    [restart] = result.restarts
    assert restart.resumed_from_step in range(KILLED_AT - 4, KILLED_AT + 1)
    assert not list((tmp_path / "runs").rglob("manifest*"))
    assert result.metrics["loss"] == pytest.approx(float(alone["loss"]), rel=0, abs=EQUAL)
    members = [np.load(tmp_path / f"rank-{rank}.npy") for rank in range(2)]
    np.testing.assert_array_equal(*members)
    np.testing.assert_allclose(members[0], alone["weights"], rtol=0, atol=EQUAL)


def test_members_with_other_weights_end_with_an_error_that_names_the_variable(pool: st.Pool, tmp_path: Path) -> None:
    last = keras_programs.EPOCHS * keras_programs.STEPS
    params = {"folder": str(tmp_path), "kill_at": 0, "compression": "none", "spoil_at": last}
    with pytest.raises(st.RunFailedError, match=r"rank 1 differs from the others in '\S*dense/bias': the members"):
        pool.run(keras_programs.train, params, workers=2, dir=str(tmp_path / "runs"), progress=False, env=ENV)


def test_auto_connects_a_gang_of_keras_on_torch_by_torch(pool: st.Pool, tmp_path: Path) -> None:
    result = pool.run(keras_programs.name_backends, {}, workers=2, dir=str(tmp_path / "runs"), progress=False, env=ENV)
    assert result.metrics == {"keras on torch": 1.0, "tensorflow": 0.0, "jax": 0.0, "mean": 0.5}
