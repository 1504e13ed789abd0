"""Memory checkpoints of loops of PyTorch: what a loss costs without a checkpoint in the store."""

import copy
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sparktrain as st
from sparktrain.state.losses.memory_tier import MemoryTier
from sparktrain.training.checkpoint import training_state
from sparktrain.training.checkpoint.memory_saver import MemorySaver
from sparktrain.training.frameworks.torch.step_gate import StepGate
from tests.torch import looping
from tests.training.snapshots import Holder

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
        hang_timeout="3s" if "hang_at" in faults else "60s", progress=False,
    )  # fmt: skip


@pytest.mark.parametrize(("rank", "victim"), [(0, "member"), (1, "member"), (0, "agent")])
def test_a_loss_costs_a_step_or_two_and_no_read_of_the_store(
    monkeypatch: pytest.MonkeyPatch, pool: st.Pool, tmp_path: Path, weights: Any, rank: int, victim: str
) -> None:
    keep = MemoryTier.keep

    def note(tier: MemoryTier, gang: Any, agent: Any, snapshot: Any) -> bool:
        kept = keep(tier, gang, agent, snapshot)
        (tmp_path / f"kept-{snapshot.step}").touch()
        return kept

    monkeypatch.setattr(MemoryTier, "keep", note)
    result = run(pool, tmp_path, kill_at=14, rank=rank, victim=victim)
    [restart] = result.restarts
    # The members of a host take turns: rank 0 has copied after step 14, and rank 1 after step 13. After the kill of its
    # agent a member may make one step more before it ends.
    assert restart.resumed_from_step in ((14,) if victim == "member" else (13, 15))
    assert result.metrics["start"] == restart.resumed_from_step
    assert not list((tmp_path / "runs").rglob("manifest*"))
    for member in range(2):
        np.testing.assert_allclose(np.load(tmp_path / f"weights-{member}.npy"), weights, rtol=0, atol=1e-6)


@pytest.mark.parametrize("by_optimizer", [True, False])
def test_a_copy_beside_the_next_step_has_the_state_after_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, by_optimizer: bool
) -> None:
    """A step of the optimizer waits for the copy; a copy is dropped where weights have changed otherwise."""
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.Adam(model.parameters())
    memory = MemorySaver(holder := Holder(), str(tmp_path))
    may_copy = threading.Event()
    copy_to = memory._copy_to

    def late(*arguments: Any) -> None:
        assert may_copy.wait(60)
        copy_to(*arguments)

    memory._copy_to = late  # type: ignore[method-assign]
    waits = StepGate.wait

    def arrive(gate: StepGate) -> None:
        may_copy.set()
        waits(gate)

    monkeypatch.setattr(StepGate, "wait", arrive)
    for step in range(1, 6):
        torch_step(model, optimizer)
        states = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        if memory._retains:
            may_copy.clear()
        memory.take((model, optimizer), (step, 1, step), memory.part((model, optimizer), {}), [])
        if by_optimizer:
            assert not may_copy.is_set()
            torch_step(model, optimizer)
            assert may_copy.is_set()
        elif step == 3:
            with torch.no_grad():
                model.weight.add_(1.0)
        may_copy.set()
        memory.settle()
        if by_optimizer or step != 3:
            again = torch.nn.Linear(256, 256)
            slots = torch.optim.Adam(again.parameters())
            training_state.restore(None, Path(holder.taken[-1].folder), 0, parts=(again, slots))
            assert_equal((again.state_dict(), slots.state_dict()), states)
    assert memory._retains is by_optimizer
    assert [message.step for message in holder.taken] == ([1, 2, 3, 4, 5] if by_optimizer else [1, 2, 4, 5])
    folders = [Path(message.folder).name for message in holder.taken]
    assert folders == (["a", "b", "a", "b", "a"] if by_optimizer else ["a", "b", "a", "b"])


def torch_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.rand(4, 256)).square().sum().backward()
    optimizer.step()


def assert_equal(found: Any, expected: Any) -> None:
    """Equal to the bit."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found = [*found.values()]
        expected = [*expected.values()]
    if isinstance(expected, list | tuple):
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
    elif isinstance(expected, torch.Tensor):
        assert torch.equal(found, expected)
    else:
        assert found == expected


def test_a_member_in_an_endless_loop_is_named_and_replaced(pool: st.Pool, tmp_path: Path, weights: Any) -> None:
    result = run(pool, tmp_path, hang_at=20)
    [restart] = result.restarts
    assert restart.kind == "hang"
    assert "has finished no training step for" in restart.cause
    np.testing.assert_allclose(np.load(tmp_path / "weights-0.npy"), weights, rtol=0, atol=1e-6)
