"""Gangs of two on one GPU: they train, and continue after a kill from checkpoints of its memory with equal weights."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from sparktrain.base.clock import SystemClock
from tests.gpu.on_gpu import learn_on_gpu

Record = Callable[[str, float], None]
KILL_AT = 14
BACKENDS = [
    "tensorflow",
    pytest.param(
        "horovod",
        marks=pytest.mark.skipif(importlib.util.find_spec("horovod") is None, reason="no Horovod: run `make horovod`"),
    ),
]


@pytest.fixture(scope="module")
def pool(gpu: str) -> Iterator[st.Pool]:
    """Two warm agents, which share the GPU."""
    with st.pool(st.local(slots=2), gpu_memory="4GiB", preload=["tensorflow", "keras"]) as made:
        yield made


def trained(pool: st.Pool, folder: Path, backend: str, **params: Any) -> tuple[st.RunResult, list[Any], float]:
    """The result, the weights of the chief, and the moment of the call."""
    notes = folder / "notes"
    notes.mkdir(parents=True)
    called = SystemClock().wall()
    result = pool.run(
        learn_on_gpu, {"folder": str(notes), "kill_at": None, **params}, workers=2, backend=backend, name="run", seed=1,
        dir=str(folder), progress=False,
    )  # fmt: skip
    with np.load(notes / "weights.npz") as weights:
        return result, [weights[name] for name in weights.files], called


def moments(folder: Path, generation: int) -> list[float]:
    """When the members of a generation have ended a step, sorted."""
    return sorted(path.stat().st_mtime for path in (folder / "notes").glob(f"{generation:02d}-*.json"))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("params", "resumes"),
    [
        pytest.param({}, (8, 12), id="durable"),
        pytest.param({"memory": "0.01s", "every": 1000}, (12, 13), id="memory"),
    ],
)
def test_a_gang_on_one_gpu_ends_with_the_same_weights_after_a_kill(
    pool: st.Pool, tmp_path: Path, record: Record, backend: str, params: dict[str, Any], resumes: tuple[int, ...]
) -> None:
    whole, weights, called = trained(pool, tmp_path / "whole", backend, **params)
    record("first_step_s", moments(tmp_path / "whole", 1)[0] - called)
    killed, resumed, _ = trained(pool, tmp_path / "killed", backend, kill_at=KILL_AT, **params)
    record("recovery_s", moments(tmp_path / "killed", 2)[0] - moments(tmp_path / "killed", 1)[-1])
    assert not whole.restarts
    [restart] = killed.restarts
    assert restart.resumed_from_step in resumes
    for one, other in zip(weights, resumed, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-4)
