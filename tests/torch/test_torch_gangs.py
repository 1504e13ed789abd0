"""Gangs of PyTorch on the local engine: programs for torchrun, and models. `process/test_eager_gangs` has the ring."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sparktrain as st
from sparktrain.errors import SpecError
from sparktrain.state.topology import ALONE
from sparktrain.training.collectives.ring import LocalRing
from sparktrain.training.frameworks.torch.torch_distribution import distribute
from sparktrain.training.frameworks.torch.torch_framework import Torch
from sparktrain.training.gang_join import JoinedGang
from tests.torch import ddp_programs

pytestmark = pytest.mark.torch

EQUAL = 1e-6
"""How far a float may be from that of one process: the members' sums have another order."""


@pytest.fixture(scope="module")
def pool() -> Iterator[st.Pool]:
    """Two agents on this machine."""
    with st.pool(st.local(slots=2), preload=["torch"]) as opened:
        yield opened


def run(pool: st.Pool, folder: Path, function: Any, /, **params: Any) -> st.RunResult:
    return pool.run(function, params, workers=2, dir=str(folder / "runs"), progress=False)


def test_a_script_for_torchrun_trains_what_one_process_trains(pool: st.Pool, tmp_path: Path) -> None:
    weights, losses = ddp_programs.train_alone()
    result = run(pool, tmp_path, ddp_programs.train, folder=str(tmp_path))

    assert losses[-1] < 0.8 * losses[0], "a model that does not learn compares nothing"
    assert result.metrics["size"] == 2
    assert result.metrics["loss"] == pytest.approx(losses[-1], rel=0, abs=EQUAL)
    assert result.restarts == ()
    for rank in range(2):
        np.testing.assert_allclose(np.load(tmp_path / f"rank-{rank}.npz")["weights"], weights, rtol=0, atol=EQUAL)


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_a_script_for_torchrun_trains_alone_too(pool: st.Pool, tmp_path: Path, backend: str) -> None:
    weights, _ = ddp_programs.train_alone()
    params = {"folder": str(tmp_path)}
    runs = str(tmp_path / "runs")
    result = pool.run(ddp_programs.train, params, workers=1, backend=backend, dir=runs, progress=False)
    assert result.metrics["size"] == 1
    np.testing.assert_allclose(np.load(tmp_path / "rank-0.npz")["weights"], weights, rtol=0, atol=EQUAL)


def test_a_script_for_torchrun_is_a_trial_of_a_sweep_too(pool: st.Pool, tmp_path: Path) -> None:
    result = pool.sweep(
        ddp_programs.train, {"folder": [str(tmp_path)]}, metric="loss", mode="min", dir=str(tmp_path / "runs"),
        progress=False,
    )  # fmt: skip
    assert result.best.metrics["size"] == 1


@pytest.mark.parametrize(("workers", "compression", "far"), [(2, "none", EQUAL), (2, "bf16", 0.02), (1, "none", EQUAL)])
def test_a_distributed_model_trains_what_one_process_trains(
    pool: st.Pool, tmp_path: Path, workers: int, compression: str, far: float
) -> None:
    weights, _ = ddp_programs.train_alone()
    params = {"folder": str(tmp_path), "compression": compression}
    result = pool.run(ddp_programs.train_by_ctx, params, workers=workers, dir=str(tmp_path / "runs"), progress=False)

    assert result.metrics["wrapped"] == (workers > 1)
    members = [np.load(tmp_path / f"rank-{rank}.npz")["weights"] for rank in range(workers)]
    np.testing.assert_array_equal(members[0], members[-1])
    np.testing.assert_allclose(members[0], weights, rtol=0, atol=far)
    assert (np.abs(members[0] - weights).max() > EQUAL) == (compression == "bf16")


def test_what_cannot_be_distributed_is_refused_with_the_next_step() -> None:
    class OtherRing(LocalRing):
        size = 2

    model = ddp_programs.network()
    gang = JoinedGang(ALONE, LocalRing, lambda: None)
    with pytest.raises(SpecError, match=r"got an optimizer of PyTorch \(SGD\).*pass the model"):
        distribute(torch.optim.SGD(model.parameters(), 0.1), gang)
    with pytest.raises(SpecError, match=r"compression \('fp61'\) must be one of 'none', 'fp16', 'bf16'.*mean 'fp16'"):
        distribute(model, gang, compression="fp61")
    with pytest.raises(SpecError, match="connected by tensorflow: pass backend='torch'"):
        distribute(model, JoinedGang(ALONE, OtherRing, lambda: None))
    assert distribute(model, gang) is model


@pytest.mark.parametrize("mirrored", [True, False])
def test_a_test_of_a_user_needs_no_other_member_where_these_mirror_it(mirrored: bool) -> None:
    model = ddp_programs.network()
    with st.testing.local_context(size=2, backend="torch", mirrored=mirrored) as ctx:
        if mirrored:
            assert ctx.distribute(model) is model
            return
        with pytest.raises(st.GangNeededError, match="needs all 2 members"):
            ctx.distribute(model)


def test_members_have_the_environment_of_torchrun_and_no_process_group(pool: st.Pool, tmp_path: Path) -> None:
    metrics = run(pool, tmp_path, ddp_programs.with_environment).metrics
    assert metrics == {
        "RANK": 0,
        "WORLD_SIZE": 2,
        "LOCAL_RANK": 0,
        "LOCAL_WORLD_SIZE": 2,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "group": 0,
    }


def test_keras_on_tensorflow_is_refused_with_the_backends_that_train_it(pool: st.Pool, tmp_path: Path) -> None:
    with pytest.raises(
        st.RunFailedError,
        match=r"ctx\.keras_callbacks\(\).* trains Keras on tensorflow, and this gang is connected by torch: let Keras "
        r"run on torch by env=\{'KERAS_BACKEND': 'torch'\}, or pass backend='horovod' or 'tensorflow'",
    ):
        run(pool, tmp_path, ddp_programs.call_keras)


def test_values_of_a_trial_alone_are_those_of_torch(tmp_path: Path, pool: st.Pool) -> None:
    result = pool.run(ddp_programs.reduce_alone, {}, workers=1, dir=str(tmp_path / "runs"), progress=False)
    assert result.metrics == {"tensor": 3.0, "number": 2.5}


def test_errors_of_gloo_are_those_of_a_ring_and_no_others() -> None:
    framework = Torch()
    closed = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:23222"
    assert framework.is_broken_collective(RuntimeError(closed))
    assert framework.is_broken_collective(torch.distributed.DistBackendError("NCCL communicator was aborted"))
    with pytest.raises(RuntimeError) as caught:
        torch.ones(2) @ torch.ones(3)
    assert not framework.is_broken_collective(caught.value)
