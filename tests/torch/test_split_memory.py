"""Memory checkpoints of models that members hold in parts: what the loss of one member costs, and that of two."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import sparktrain as st
from sparktrain import cli
from sparktrain.state.gangs import timeouts
from sparktrain.state.losses.memory_tier import MemoryTier
from tests.faults.test_draining import agent_of
from tests.support.processes import wait_until
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


def run(
    pool: st.Pool, folder: Path, workers: int = 2, options: dict[str, Any] | None = None, lost: Any = (), **plan: Any
) -> st.RunResult:
    params = {"folder": str(folder), "steps": STEPS, "kill_at": KILLED if lost else 0, "lost": lost, **plan}
    with ThreadPoolExecutor(1) as beside:
        killed = beside.submit(kill, folder, lost)
        result = pool.run(
            sharded_loops.learn, params, workers=workers, dir=str(folder / "runs"), name="run", progress=False,
            **(options or {}),
        )  # fmt: skip
        killed.result()
    return result


def kill(folder: Path, lost: Any) -> None:
    """End all that are lost at once, when all parts after the step are held.

    Not from a member: the end of the gang, after the first loss, would end it before the second one.
    """
    if not lost:
        return
    files = [folder / f"{rank}.pid" for rank, _ in lost]
    wait_until(lambda: all(path.exists() and path.read_text() for path in files), 120, "the processes that are lost")
    wait_until((folder / f"kept-{KILLED}").exists, 60, f"the copies after step {KILLED}")
    for path in files:
        os.kill(int(path.read_text()), signal.SIGKILL)
    (folder / "killed").touch()


def noting(folder: Path) -> Callable[..., bool]:
    """What takes in the place of `MemoryTier.keep`: it also makes a file for each step once all its parts are held."""
    keep = MemoryTier.keep

    def note(tier: MemoryTier, gang: Any, *message: Any) -> bool:
        kept = keep(tier, gang, *message)
        if (newest := tier.held.newest(gang.trial)) is not None:
            (folder / f"kept-{newest.step}").touch()
        return kept

    return note


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
    monkeypatch.setattr(MemoryTier, "keep", noting(tmp_path))
    workers = 4 if plan == "hybrid" else 2
    result = run(pool, tmp_path, workers, plan=plan, lost=lost)
    [restart] = result.restarts
    assert restart.resumed_from_step in resumed
    assert result.metrics["start"] == restart.resumed_from_step
    for found in weights(tmp_path, workers):
        assert all(torch.equal(found[name], weight) for name, weight in unbroken[plan].items())


def test_fewer_members_continue_from_the_parts_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, unbroken: dict[str, dict[str, torch.Tensor]]
) -> None:
    monkeypatch.setattr(timeouts, "REPLACEMENT_S", 0.0)
    monkeypatch.setattr(MemoryTier, "keep", noting(tmp_path))
    with st.pool(st.local(slots=3), preload=["torch"]) as three:
        result = run(three, tmp_path, 3, {"min_workers": 2}, lost=[(1, "agent")])
    restart = result.restarts[0]
    assert restart.resumed_from_step in {KILLED, KILLED + 1}
    assert (result.metrics["start"], result.metrics["size"]) == (restart.resumed_from_step, 2)
    for name, weight in weights(tmp_path, 1)[0].items():
        assert torch.allclose(weight, unbroken["fsdp"][name], atol=1e-6)


def test_a_gang_pauses_for_a_drained_agent_with_the_parts_of_its_members(pool: st.Pool, tmp_path: Path) -> None:
    def drain() -> None:
        wait_until(lambda: len([*tmp_path.glob("newest-*")]) == 2, 60, "the first steps")
        agent = str(agent_of(pool, 0, 1).slot)
        assert cli.main(["drain", str(tmp_path / "runs" / "run"), "--agent", agent]) == 0

    with ThreadPoolExecutor(1) as beside:
        drained = beside.submit(drain)
        result = pool.run(
            sharded_loops.learn_until_it_moves, {"folder": str(tmp_path)}, workers=2, max_retries=0,
            dir=str(tmp_path / "runs"), name="run", progress=False,
        )  # fmt: skip
        drained.result()
    [restart] = result.restarts
    assert (restart.cause, restart.steps_lost, restart.paused) == ("drained", 0, True)
    assert result.metrics["start"] == restart.resumed_from_step > 0
    for rank in range(2):
        newest, restored = (torch.load(tmp_path / f"{name}-{rank}.pt") for name in ("newest-1", "restored-2"))
        assert all(torch.equal(restored[name], weight) for name, weight in newest.items())
