"""Loops of models that members hold in parts, with memory checkpoints, and members that are lost."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.support import drill
from tests.support.processes import wait_until
from tests.torch.sharded_programs import network, optimizer_of, train_step


def await_kills(folder: Path, rank: int, lost: Any) -> None:
    """Note which process is lost with this rank, if any is, and wait until the test has killed all of them."""
    for number, victim in lost:
        if number == rank:
            Path(folder, f"{number}.pid").write_text(str(drill.pid_of(victim)))
    wait_until(Path(folder, "killed").exists, 60, "the kills")


def learn_until_it_moves(folder: str, ctx: Any) -> dict[str, float]:
    """Train a model in parts until the gang pauses, and three steps in its next processes.

    Each member writes the weights after its newest step, and those that it has restored.
    """
    dist.init_process_group("gloo")
    model = network(seed=ctx.generation)
    optimizer = optimizer_of(model)
    start = restored.step if (restored := ctx.checkpoint.restore(model, optimizer)) else 0
    _note_weights(model, Path(folder, f"restored-{ctx.generation}-{ctx.rank}.pt"))
    with ctx.memory_checkpoints(model, optimizer, every="1s") as memory:
        for step in range(start + 1, start + 4 if start else 100_000):
            train_step(model, optimizer, step)
            _note_weights(model, Path(folder, f"newest-{ctx.generation}-{ctx.rank}.pt"))
            memory.step(step)
    return {"start": start}


def _note_weights(model: Any, path: Path) -> None:
    torch.save({name: weight.full_tensor() for name, weight in model.state_dict().items()}, path)


def learn(folder: str, steps: int, ctx: Any, plan: str = "fsdp", kill_at: int = 0, lost: Any = ()) -> dict[str, float]:
    """Train a model in parts with a memory checkpoint after each step; lose members after one.

    `lost` has pairs of a rank and of what is killed: "member" or "agent".
    """
    dist.init_process_group("gloo")
    model = network(plan, seed=ctx.generation)
    optimizer = optimizer_of(model)
    restored = ctx.checkpoint.restore(model, optimizer)
    start = 0 if restored is None else restored.step
    losses = [] if restored is None else restored["losses"]
    assert len(losses) == start
    with ctx.memory_checkpoints(model, optimizer, every="0.01s") as memory:
        for step in range(start + 1, steps + 1):
            losses.append(train_step(model, optimizer, step, plan))
            memory.step(step, losses=losses)
            if step == 2:
                ctx.checkpoint.save(step, model, optimizer, losses=losses)
                ctx.checkpoint.wait()
            if ctx.generation == 1 and kill_at:
                ctx._gang.memory.settle()  # a copy that is not made yet postpones the next one
            if ctx.generation == 1 and step == kill_at:
                await_kills(Path(folder), ctx.rank, lost)
    _note_weights(model, Path(folder, f"rank-{ctx.rank}.pt"))
    return {"start": start, "size": ctx.size, "loss": losses[-1]}
