"""Memory checkpoints of models that members hold in parts: what the loss of one member costs, and that of two."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import sparktrain as st
from sparktrain.state.losses.memory_tier import MemoryTier
from tests.torch import sharded_loops

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]
STEPS = 9
KILLED = 6
"""The step after which members are lost."""
STORED = 2
"""The step of the only checkpoint in the store."""


@pytest.fixture(scope="module")
def pool() -> Iterator[st.Pool]:
    """Four warm agents on this machine."""
    with st.pool(st.local(slots=4), preload=["torch"]) as opened:
        yield opened


def run(pool: st.Pool, folder: Path, workers: int = 2, **faults: Any) -> st.RunResult:
    return pool.run(
        sharded_loops.learn, {"folder": str(folder), "steps": STEPS, **faults}, workers=workers,
        dir=str(folder / "runs"), name="run", progress=False,
    )  # fmt: skip


def weights(folder: Path, workers: int) -> list[dict[str, torch.Tensor]]:
    return [torch.load(folder / f"rank-{rank}.pt") for rank in range(workers)]


@pytest.fixture(scope="module")
def unbroken(pool: st.Pool, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, torch.Tensor]]:
    """The weights of gangs that lose no member, by plan."""
    expected = {}
    for plan, workers in (("fsdp", 2), ("hybrid", 4)):
        folder = tmp_path_factory.mktemp(plan)
        assert not run(pool, folder, workers, plan=plan).restarts
        expected[plan] = weights(folder, workers)[0]
    return expected


@pytest.mark.parametrize(
    ("plan", "lost", "resumed"),
    [
        ("fsdp", [(0, "member")], {KILLED}),
        # After the kill of its agent a member may make one step more before it ends.
        ("fsdp", [(1, "agent")], {KILLED, KILLED + 1}),
        ("fsdp", [(0, "agent"), (1, "agent")], {STORED}),
        ("hybrid", [(3, "agent")], {KILLED, KILLED + 1}),
        ("hybrid", [(1, "agent"), (3, "agent")], {STORED}),
    ],
)
def test_a_lost_part_comes_from_the_copy_of_another_member(
    monkeypatch: pytest.MonkeyPatch,
    pool: st.Pool,
    tmp_path: Path,
    unbroken: dict[str, dict[str, torch.Tensor]],
    plan: str,
    lost: list[tuple[int, str]],
    resumed: set[int],
) -> None:
    keep = MemoryTier.keep

    def note(tier: MemoryTier, gang: Any, *message: Any) -> bool:
        kept = keep(tier, gang, *message)
        if (newest := tier.held.newest(gang.trial)) is not None:
            (tmp_path / f"kept-{newest.step}").touch()
        return kept

    monkeypatch.setattr(MemoryTier, "keep", note)
    workers = 4 if plan == "hybrid" else 2
    result = run(pool, tmp_path, workers, plan=plan, kill_at=KILLED, lost=lost)
    [restart] = result.restarts
    assert restart.resumed_from_step in resumed
    assert result.metrics["start"] == restart.resumed_from_step
    for found in weights(tmp_path, workers):
        assert all(torch.equal(found[name], weight) for name, weight in unbroken[plan].items())
